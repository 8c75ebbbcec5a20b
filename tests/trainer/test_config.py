"""TrialConfig and trial_id."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from tests.support.cifar_images import CIFAR
from tests.support.project import TINY

finite = st.floats(0, 1e6, allow_nan=False)
positive = st.floats(1e-9, 1e6, allow_nan=False)


@st.composite
def configs(draw: st.DrawFn) -> dict:
    """Any valid config as a user may write it."""
    optimizer = draw(st.sampled_from(["sgd", "usam", "sam"]))
    scheduler = draw(st.sampled_from(["constant", "cosine", "polyak"]))
    values = {
        "task": "digits",
        "model": draw(st.sampled_from(["resnet8", "resnet20", "resnet32"])),
        "optimizer": optimizer,
        "scheduler": scheduler,
        "weight_decay": draw(finite),
        "seed": draw(st.integers(0, 2**40)),
        "epochs": draw(st.integers(1, 500)),
        "batch_size": draw(st.integers(1, 1437)),
    }
    if draw(st.booleans()):
        values |= {"model": "mlp", "model_options": {"hidden": draw(st.integers(1, 512))}}
    if optimizer != "sgd":
        values |= {"rho": draw(finite)}
        if draw(st.booleans()):
            values |= {"batchnorm_statistics": draw(st.sampled_from(["both", "first"]))}
    if scheduler == "polyak":
        values |= {"gamma_b": draw(positive), "lower_bound": draw(st.floats(-5, 5))}
    else:
        values |= {"lr": draw(positive)}
    if scheduler == "cosine":
        values |= {"lr_min": values["lr"] * draw(st.floats(0, 0.99))}
    return values


@given(configs(), st.randoms(use_true_random=False))
def test_key_order_never_changes_the_id(values: dict, order: random.Random) -> None:
    keys = list(values)
    order.shuffle(keys)
    assert TrialConfig.parse({k: values[k] for k in keys}).trial_id == TrialConfig.parse(values).trial_id


@given(configs())
def test_number_spelling_never_changes_the_id(values: dict) -> None:
    respelt = {
        k: f"{v:.17e}" if isinstance(v, float) else float(v) if isinstance(v, int) and v < 2**53 else v
        for k, v in values.items()
    }
    assert TrialConfig.parse(respelt).trial_id == TrialConfig.parse(values).trial_id


@given(configs())
def test_round_trips_keep_the_config_and_the_id(values: dict) -> None:
    config = TrialConfig.parse(values)
    for copy in (
        TrialConfig.parse(json.loads(json.dumps(config.canonical()))),
        TrialConfig.model_validate_json(config.model_dump_json()),
    ):
        assert copy == config
        assert copy.trial_id == config.trial_id


@given(configs(), st.data())
def test_any_change_of_a_value_changes_the_id(values: dict, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([k for k, v in values.items() if isinstance(v, int | float)]))
    old = values[key]
    if isinstance(old, int):
        new = old + 1 if (key, old) != ("batch_size", 1437) else old - 1
    else:
        new = data.draw(positive.filter(lambda x: x != old))
        assume({"lr_min": 0.0, **values, key: new}["lr_min"] < {"lr": math.inf, **values, key: new}["lr"])
    assert TrialConfig.parse({**values, key: new}).trial_id != TrialConfig.parse(values).trial_id


@given(configs())
def test_a_new_field_with_its_default_would_not_change_the_id(values: dict) -> None:
    class Later(TrialConfig):
        gradient_clip: float = Field(default=0.0)

    later = Later.parse(values)
    assert later.trial_id == TrialConfig.parse(values).trial_id
    assert Later.parse({**values, "gradient_clip": 1.0}).trial_id != later.trial_id


def test_the_id_is_pinned() -> None:
    """An id that moves orphans every trial that anybody has run."""
    assert TrialConfig.parse(TINY).trial_id == "8292fa7172adc6e4"


def test_defaults_given_or_left_out_are_one_trial() -> None:
    explicit = {**TINY, "gamma_b": 1, "lower_bound": "0", "momentum": 0, "seed": 0, "weight_decay": -0.0,
                "model_options": {"hidden": 64, "layers": 2}, "batchnorm_statistics": "both"}  # fmt: skip
    assert TrialConfig.parse(explicit).trial_id == TrialConfig.parse(TINY).trial_id


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"rho": -0.1}, "rho", ["greater than or equal to 0", "-0.1"]),
        ({"rho": float("nan")}, "rho", ["finite"]),
        ({"rho": "wide"}, "rho", ["number", "'wide'"]),
        ({"rho": True}, "rho", ["not true or false"]),
        ({"rho": None}, "rho", ["missing", "usam"]),
        ({"lr": 0.1}, "lr", ["scheduler 'polyak' does not use it", "constant, cosine"]),
        ({"task": "imagenet"}, "task", ["unknown task 'imagenet'", "digits"]),
        ({"model": "resnet9"}, "model", ["did you mean 'resnet8'", "mlp, resnet20, resnet32, resnet8"]),
        ({"scheduler": "cosin"}, "scheduler", ["did you mean 'cosine'", "constant, cosine, decsps"]),
        ({"optimizer": "lion"}, "optimizer", ["sam, sgd, sgdw, usam"]),
        ({"optimizer": "sgd"}, "rho", ["optimizer 'sgd' does not use it", "usam, sam"]),
        ({"epochs": 0}, "epochs", ["greater than or equal to 1"]),
        ({"batch_size": 2000}, "batch_size", ["2000", "1437 training images"]),
        ({"weight_deca": 0.1}, "weight_deca", ["did you mean 'weight_decay'"]),
        ({"model_options": {"hiden": 3}}, "model_options", ["'hiden'", "hidden, layers"]),
        ({"model_options": {"hidden": 0}}, "model_options.hidden", ["greater than or equal to 1"]),
        ({"model_options": 3}, "model_options", ["mapping"]),
        ({"precision": "float16"}, "precision", ["float32", "float64"]),
    ],
)
def test_a_wrong_value_is_named_with_the_valid_ones(change: dict, key: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        TrialConfig.parse({**TINY, **change})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        "polysweep.trainer.config",
        "polysweep.sweeps.spec.spec",
        "polysweep.sweeps.planning.plan",
        "polysweep.sweeps.store.store",
        "polysweep.cli",
    ],
)
def test_planning_imports_neither_torch_nor_ray_nor_wandb(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('torch', 'ray', 'wandb') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_analysis_imports_no_torch() -> None:
    names = ("data.pulling", "tables.choice", "tables.mean_std", "figures.plots", "report.html")
    modules = ", ".join(f"polysweep.analysis.{name}" for name in names)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 81}, "batch_size: 81 is larger than the 80"),
        ({"batch_size": 65, "val_fraction": 0.2}, "batch_size: 65 is larger than the 64"),
        (
            {"val_fraction": 0.05},
            "val_fraction: 0.05 of 80 training images of tests.support.mini_cifar:cifar10 leaves a class empty",
        ),
        ({"augmentation": "mixup"}, "augmentation"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_it_is_loaded(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrialConfig.parse({**CIFAR, **change})


def test_digits_are_not_augmented() -> None:
    with pytest.raises(ConfigError, match="augmentation: 'crop\\+flip' is not for digits; its own: none"):
        TrialConfig.parse({**CIFAR, "task": "digits", "augmentation": "crop+flip"})


def test_precision_is_part_of_a_trial() -> None:
    values = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "polyak"}
    ids = {TrialConfig.parse({**values, "precision": p}).trial_id for p in ("float32", "bfloat16", "float64", "tf32")}
    assert len(ids) == 4
