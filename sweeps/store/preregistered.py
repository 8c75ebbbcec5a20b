"""The claims of a sweep, frozen before its first trial starts: sweeps/<name>/preregistered.json."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from polysweep.sweeps.spec.preregistration import Claim, Preregistration
from polysweep.sweeps.store.checking import json_bytes, parse_json
from polysweep.sweeps.store.files import Files, StoreError

FILE: Final = "preregistered.json"


class _Frozen(TypedDict):
    hash: str
    at: str
    ended: int
    claims: list[Claim]


_FROZEN: Final = TypeAdapter(_Frozen)


def frozen_claims(files: Files, name: str) -> Preregistration | None:
    """What the first launch of a sweep has frozen; None if that had no claims, or there was none.

    Raises `StoreError` if the file is damaged, or was changed since.
    """
    path = f"sweeps/{name}/{FILE}"
    content = files.read(path)
    if not content:
        return None
    address = files.path(path)
    try:
        fields = _FROZEN.validate_python(parse_json(content, address))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{address}: damaged: {where}: {error.errors()[0]['msg']}") from None
    frozen = Preregistration(tuple(fields["claims"]), fields["at"], fields["ended"])
    if frozen.hash != fields["hash"]:
        raise StoreError(f"{address}: changed since it was frozen: its claims have the hash {frozen.hash}, not "
                         f"{fields['hash']}")  # fmt: skip
    return frozen


def freeze_claims(files: Files, name: str, claims: Preregistration, ended: int) -> Preregistration:
    """Keep the claims of a sweep that is launched for the first time; returns what holds, these or an earlier launch's.

    `ended` is how many of its trials have ended already. Without claims nothing is kept.
    """
    if claims.claims:
        at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        content = json_bytes({"hash": claims.hash, "at": at, "ended": ended, "claims": claims.canonical()})
        if not files.create(f"sweeps/{name}/{FILE}", content) and not files.read(f"sweeps/{name}/{FILE}"):
            files.write(f"sweeps/{name}/{FILE}", content)  # its writer was killed on a file system without links
    return frozen_claims(files, name) or claims
