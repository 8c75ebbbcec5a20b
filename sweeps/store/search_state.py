"""What the search of a sweep has decided: proposed points, early ends, exhaustion. Each decision is made once.

sweeps/<name>/points/<n>.json (a proposal of bayes), rungs/<trial_id>-<epoch>.json (whether a point survives that rung),
ended/<trial_id>.json (a trial that is to stop), exhausted (bayes finds no further point), and those of `decisions`
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.store.checking import checked_point, json_bytes, parse_content
from polysweep.sweeps.store.decisions import DecisionFiles
from polysweep.sweeps.store.files import Files, StoreError

if TYPE_CHECKING:
    from polysweep.sweeps.spec.decisions import Choice, Decisions, Look
    from polysweep.sweeps.spec.search import Suggestion
    from polysweep.sweeps.spec.spec import SweepSpec

_POINT: Final = re.compile(r"[0-9]{6,9}\.json")


@dataclass
class SearchState:
    """The decisions of the searches in a Store. Everything is kept before it is acted on."""

    files: Files

    def as_decided(self, spec: SweepSpec) -> SweepSpec:
        """The sweep with all that has been decided of it: proposed points, chosen candidates, further seeds."""
        spec = self._with_proposals(spec) if spec.method == "bayes" else spec
        if not spec.decides:
            return spec
        decisions = self.decisions(spec.name)
        tuning = {trial.trial_id for trial in spec.tuning_trials}
        for cell in decisions.choices.keys() & by_key(spec.tuning_trials).keys():
            if decisions.choices[cell].chosen not in tuning:
                path = self.files.path(f"sweeps/{spec.name}/choices/{cell}.json")
                raise StoreError(f"{path}: damaged: {decisions.choices[cell].chosen!r} is no trial of its cell")
        return spec.with_decisions(decisions)

    def decisions(self, name: str) -> Decisions:
        """What results have decided of a sweep."""
        return DecisionFiles(self.files).read(name)

    def keep_decision(self, name: str, decision: Choice | Look) -> None:
        """Keep what results have decided before it is acted on."""
        DecisionFiles(self.files).keep(name, decision)

    def begin_looks(self, name: str, begun: int) -> None:
        """Keep how many trials had begun when looks were first asked for."""
        DecisionFiles(self.files).begin(name, begun)

    def _with_proposals(self, spec: SweepSpec) -> SweepSpec:
        suggestions = self.suggestions(spec.name)
        if any(suggestion.point.variant >= len(spec.variants) for suggestion in suggestions):
            path = self.files.path(f"sweeps/{spec.name}/points")
            raise StoreError(f"{path}: damaged: a point of a variant that the spec does not have")
        return spec.with_suggestions(suggestions)

    def suggestions(self, name: str) -> list[Suggestion]:
        """What bayes has proposed, in order."""
        from polysweep.sweeps.spec.search import Point, Suggestion

        paths = [f"sweeps/{name}/points/{file}" for file in self._point_files(name)]
        suggestions = []
        for path, content in self.files.read_many(paths).items():
            if not content:  # its writer was killed on a file system without links
                continue
            address = self.files.path(path)
            proposal = checked_point(parse_content(content, address), address)
            point = Point(proposal["point"]["variant"], proposal["point"]["values"])
            suggestions.append(Suggestion(point, proposal["raw"]))
        return suggestions

    def proposals(self, name: str) -> int:
        """How many points bayes has proposed."""
        return len(self._point_files(name))

    def _point_files(self, name: str) -> list[str]:
        return [file for file in self.files.names(f"sweeps/{name}/points") if _POINT.fullmatch(file)]

    def add_suggestion(self, name: str, suggestion: Suggestion, number: int) -> bool:
        """Keep a proposal before it is tried; False if another launch has added one to the first `number`."""
        present = self._point_files(name)
        if len(self.suggestions(name)) != number:
            return False
        index = int(present[-1].removesuffix(".json")) + 1 if present else 0
        token = uuid.uuid4().hex  # two launches may propose the same point: it tells whose file it is
        proposal = {"point": suggestion.point._asdict(), "raw": dict(suggestion.raw), "token": token}
        return self.files.create(f"sweeps/{name}/points/{index:06d}.json", json_bytes(proposal))

    def decide(self, name: str, trials: Sequence[str], rung: int, survives: bool, why: Mapping[str, Any]) -> bool:
        """Keep once and for all whether a point survives a rung; returns what holds, this or an earlier decision.

        A point is named by its first seed; if it stops, each of its trials is marked afterwards.
        """
        path = f"sweeps/{name}/rungs/{trials[0]}-{rung}.json"
        decision = json_bytes({"goes_on": survives, **why, "token": uuid.uuid4().hex})
        if not self.files.create(path, decision):
            content = self.files.read(path)
            if not content:  # its writer was killed on a file system without links
                self.files.write(path, decision)
                content = decision
            earlier = parse_content(content, self.files.path(path))
            survives = bool(earlier.get("goes_on", True)) if isinstance(earlier, dict) else True
        if not survives:
            for trial_id in trials:
                self.files.write(f"sweeps/{name}/ended/{trial_id}.json", json_bytes(why))
        return survives

    def ended_early(self, name: str, trial_id: str) -> bool:
        """Whether it has been decided that a trial stops."""
        return self.files.exists(f"sweeps/{name}/ended/{trial_id}.json")

    def all_ended_early(self, name: str) -> set[str]:
        """The trials that are to stop."""
        return {file.removesuffix(".json") for file in self.files.names(f"sweeps/{name}/ended")}

    def mark_exhausted(self, name: str) -> None:
        """Keep that bayes has found no further point."""
        self.files.write(f"sweeps/{name}/exhausted", b"")

    def is_exhausted(self, name: str) -> bool:
        """Whether bayes has found no further point."""
        return self.files.exists(f"sweeps/{name}/exhausted")
