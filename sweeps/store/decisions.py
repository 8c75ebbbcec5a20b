"""What results have decided of a sweep, each decision kept once, before it is acted on.

sweeps/<name>/choices/<cell>.json (which candidate reports), looks/<number>.json (a look at all comparisons),
looks/begun.json (how many trials had begun when looks were asked for)
"""

from __future__ import annotations

import re
import uuid
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from polysweep.sweeps.spec.decisions import Choice, Decisions, Look
from polysweep.sweeps.store.checking import json_bytes, parse_content
from polysweep.sweeps.store.files import Files, StoreError

_CHOICE: Final = TypeAdapter(Choice)
_LOOK: Final = TypeAdapter(Look)
_CHOICE_FILE: Final = re.compile(r"[0-9a-f]{16}\.json")
_LOOK_FILE: Final = re.compile(r"[0-9]{2}\.json")
_BEGUN_FILE: Final = "looks/begun.json"


class _Begun(TypedDict):
    begun: Annotated[int, Field(ge=0)]


_BEGUN: Final = TypeAdapter(_Begun)


@dataclass
class DecisionFiles:
    """The decisions of the sweeps in a Store."""

    files: Files

    def read(self, name: str) -> Decisions:
        """All decisions of a sweep. Raises `StoreError` for a damaged one, and for a look that is missing."""
        choices = []
        for address, content in self._contents(name, "choices", _CHOICE_FILE):
            choices.append(_checked(_CHOICE, address, content))
            if not address.endswith(f"{choices[-1].cell}.json"):
                raise StoreError(f"{address}: damaged: it is the choice of the cell {choices[-1].cell}")
        looks = [_checked(_LOOK, *one) for one in self._contents(name, "looks", _LOOK_FILE)]
        for number, look in enumerate(looks, start=1):
            if look.number != number:
                folder = self.files.path(f"sweeps/{name}/looks")
                raise StoreError(f"{folder}: damaged: look {number} is missing; restore {number:02d}.json")
        begun = self._begun(name)
        return Decisions({choice.cell: choice for choice in choices}, tuple(looks), begun)

    def _begun(self, name: str) -> int:
        path = f"sweeps/{name}/{_BEGUN_FILE}"
        content = parse_content(self.files.read(path) or None, self.files.path(path))
        return 0 if content is None else int(_checked(_BEGUN, self.files.path(path), content)["begun"])

    def begin(self, name: str, begun: int) -> None:
        """Keep how many trials had begun when looks were asked for, unless an earlier launch has kept it."""
        self.files.create(f"sweeps/{name}/{_BEGUN_FILE}", json_bytes({"begun": begun, "token": uuid.uuid4().hex}))

    def _contents(self, name: str, folder: str, pattern: re.Pattern[str]) -> list[tuple[str, Any]]:
        files = [one for one in self.files.names(f"sweeps/{name}/{folder}") if pattern.fullmatch(one)]
        contents = self.files.read_many([f"sweeps/{name}/{folder}/{one}" for one in sorted(files)])
        addresses = {self.files.path(path): content for path, content in contents.items()}
        # An empty one is of a writer that was killed, on a file system without links.
        return [(address, parse_content(content, address)) for address, content in addresses.items() if content]

    def keep(self, name: str, decision: Choice | Look) -> None:
        """Keep a decision, unless another launch has kept one: that one holds."""
        file = f"looks/{decision.number:02d}.json" if isinstance(decision, Look) else f"choices/{decision.cell}.json"
        path, content = f"sweeps/{name}/{file}", json_bytes(asdict(decision))
        if not self.files.create(path, content) and self.files.read(path) == b"":
            self.files.write(path, content)


def _checked(model: TypeAdapter[Any], address: str, value: Any) -> Any:
    try:
        return model.validate_python(value)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise StoreError(f"{address}: damaged: {place}: {error.errors()[0]['msg']}") from None
