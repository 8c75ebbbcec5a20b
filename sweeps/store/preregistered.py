"""The claims of a sweep, frozen before its first trial starts: sweeps/<name>/preregistered.json."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from polysweep.sweeps.spec.preregistration import Claim, Preregistration
from polysweep.sweeps.store.checking import json_bytes, parse_json
from polysweep.sweeps.store.files import Files, StoreError

FILE: Final = "preregistered.json"


class _Frozen(TypedDict):
    hash: str
    at: str
    begun: Annotated[int, Field(ge=0)]
    design: dict[str, str]
    claims: list[Claim]


_FROZEN: Final = TypeAdapter(_Frozen)


def frozen_claims(files: Files, name: str) -> Preregistration | None:
    """What the first launch of a sweep has frozen; None if that had no claims, or there was none.

    Raises `StoreError` if the file is damaged, or was changed since.
    """
    path = f"sweeps/{name}/{FILE}"
    content = files.read(path)
    if content is None:
        return None
    address = files.path(path)
    try:
        fields = _FROZEN.validate_python(parse_json(content, address))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{address}: damaged: {where}: {error.errors()[0]['msg']}") from None
    frozen = Preregistration(tuple(fields["claims"]), fields["design"], fields["at"], fields["begun"])
    if frozen.hash != fields["hash"]:
        raise StoreError(
            f"{address}: was changed after it was frozen (its hash is {frozen.hash}, not {fields['hash']}); restore it"
        )
    return frozen


def freeze_claims(files: Files, name: str, claims: Preregistration, begun: int) -> Preregistration:
    """Keep the claims of a sweep that is launched for the first time; returns what holds, these or an earlier launch's.

    `begun` is how many of its trials have begun already. Without claims nothing is kept.
    """
    if not claims.claims:
        return frozen_claims(files, name) or claims
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    frozen = replace(claims, at=at, begun=begun)
    content = json_bytes({"hash": frozen.hash, **frozen.canonical()})
    path = f"sweeps/{name}/{FILE}"
    if not files.create(path, content) and files.read(path) == b"":
        files.write(path, content)  # its writer was killed on a file system without links
    return frozen_claims(files, name) or claims
