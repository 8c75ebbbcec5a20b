"""Addresses of W&B, and nested configs as flat ones."""

from __future__ import annotations

import pytest

from polysweep.analysis.data.address import Address, flattened, parse_mapping
from polysweep.trainer.errors import UserError


@pytest.mark.parametrize(("text", "name"), [("wandb://lab/p", "p"), ("wandb://lab/p/small", "small")])
def test_an_address_is_written_as_it_was_read_and_named_by_its_last_part(text: str, name: str) -> None:
    address = Address.parse(text)
    assert str(address) == text and address.name == name and (address.entity, address.project) == ("lab", "p")


@pytest.mark.parametrize(
    "text", ["lab/p", "wandb://lab/p/", "wandb://lab//t", "wandb://a/b/c/d", "wandb://lab/p?x", "wandb://lab/my p"]
)
def test_an_address_with_empty_parts_or_signs_of_a_url_is_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        Address.parse(text)
    assert str(refused.value) == (
        f"{text!r} is not a W&B address; expected wandb://ENTITY/PROJECT or wandb://ENTITY/PROJECT/TAG"
    )


def test_one_field_of_theirs_stands_for_one_of_ours() -> None:
    assert parse_mapping(["rho=optimizer.radius", "seed=a=b"]) == {"rho": "optimizer.radius", "seed": "a=b"}
    with pytest.raises(UserError, match=r"^--map: 'lr=x': x is mapped twice$"):
        parse_mapping(["rho=x", "lr=x"])


def test_nested_maps_are_joined_by_dots_and_an_empty_one_is_a_value() -> None:
    assert flattened({"a": {"b": {"c": 1}, "d": []}, "e": {}}) == {"a.b.c": 1, "a.d": [], "e": {}}
