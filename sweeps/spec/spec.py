"""The sweep spec: the W&B sweep format plus variants, tuned parameters and seeds; from YAML to trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, PrivateAttr

from polysweep.sweeps.spec.added_trials import Cache, added_trials
from polysweep.sweeps.spec.checks import check_fields, check_metric, check_metric_is_given
from polysweep.sweeps.spec.claim_checks import check_claims, require_known_cells
from polysweep.sweeps.spec.decisions import Decisions
from polysweep.sweeps.spec.diagnosis import report
from polysweep.sweeps.spec.expansion import Expansion, corners, expand, kinds, middles, ranges
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.preregistration import Preregistration
from polysweep.sweeps.spec.protocol import metric_reported
from polysweep.sweeps.spec.reading import read_fields
from polysweep.sweeps.spec.replication_checks import check_cells
from polysweep.sweeps.spec.search import Suggestion
from polysweep.sweeps.spec.sweep import RecordedMetric, Settings, Sweep, SweepTrial, with_cells
from polysweep.sweeps.spec.yaml_lines import Source, SpecError, kind_of, read_text, read_yaml, with_run_cap
from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig


class SweepSpec(SpecFields):
    """A sweep: the points of `parameters` and one of `variants` that `method` names, each with all the seeds.

    `SweepSpec.load` reads a file, `SweepSpec.parse` a text; both raise `SpecError` with file and line.
    """

    _source: Source = PrivateAttr()
    _text: str = PrivateAttr(default="")
    _recorded: bool = PrivateAttr(default=False)
    _notes: tuple[str, ...] = PrivateAttr(default=())
    _title: str = PrivateAttr(default="")
    _suggestions: tuple[Suggestion, ...] = PrivateAttr(default=())
    _decisions: Decisions = PrivateAttr(default=Decisions())
    _added: Cache = PrivateAttr(default_factory=dict)  # also of its copies
    _has_distinct_draws: bool = PrivateAttr(default=False)

    @classmethod
    def load(cls, path: str | Path, *, recorded: bool = False, count: int | None = None) -> SweepSpec:
        """Read a spec file; a missing name is the file's stem. `recorded` and `count` are those of `parse`."""
        path = Path(path)
        return cls.parse(read_text(path), str(path), path.stem, recorded=recorded, count=count)

    @classmethod
    def parse(
        cls, text: str, source: str, stem: str = "sweep", *, recorded: bool = False, count: int | None = None
    ) -> SweepSpec:
        """Validate a spec's text; `source` is what its errors name, `stem` the name if it gives none.

        `recorded` is for a spec that was launched: what an earlier version allowed can still be read. `count` is the
        `run_cap` of a search whose text has none; the spec's own text then has it. Raises `SpecError` with everything
        that is wrong, by line.
        """
        misread: list[SpecError] = []
        data, lines = read_yaml(text, source, recorded=recorded, misread=misread)
        where = Source(source, lines)
        if not isinstance(data, dict):
            raise where.error((), f"a sweep spec is a mapping, not {kind_of(data)}")
        read = read_fields(data, where, stem, count=count, recorded=recorded)
        spec = read.validated(cls)
        if spec is not None:
            check_fields(spec, read.problems)
        if spec is None or misread or read.problems or read.reading.unknown:
            raise report(data, where, stem, count, misread=misread)
        spec._source, spec._recorded, spec._notes, spec._title = where, recorded, tuple(read.notes), read.title
        spec._text = text if count is None else with_run_cap(text, count)
        try:
            check_metric(spec, [*spec.corners, *spec.kinds], where)
            check_metric_is_given(spec, data, where)
            if not recorded:
                spec._check_decisions()
        except SpecError as error:
            raise (error if recorded else report(data, where, stem, count, raised=error)) from None
        return spec

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of a spec file, for editors."""
        schema = cls.model_json_schema()
        entry = {"$ref": "#/$defs/Parameter"}
        named = {"type": "object", "properties": dict.fromkeys(TrialConfig.model_fields, entry)}
        schema["properties"]["parameters"] = {**named, "additionalProperties": entry}
        schema["properties"]["variants"]["items"] = {**named, "additionalProperties": entry}
        schema["required"] = ["parameters"]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

    @property
    def text(self) -> str:
        """The file's text, as written."""
        return self._text

    @property
    def notes(self) -> list[str]:
        """What is not taken as the file says it, a line each."""
        ignored = [f"ignored: {', '.join(self.ignored)} (polysweep has its own trainer)"] if self.ignored else []
        return [*ignored, *self._notes]

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """The points of a bayes sweep that are known."""
        return self._suggestions

    def with_suggestions(self, suggestions: Iterable[Suggestion]) -> SweepSpec:
        """The same bayes sweep with these points as its trials."""
        spec = self._unexpanded()
        spec._suggestions = tuple(suggestions)
        return spec

    @property
    def decisions(self) -> Decisions:
        """What its results have decided, as far as is known."""
        return self._decisions

    def with_decisions(self, decisions: Decisions) -> SweepSpec:
        """The same sweep with the trials that these decisions add."""
        spec = self._unexpanded("trials", "kinds")
        spec._decisions = decisions
        return spec

    def with_distinct_draws(self) -> SweepSpec:
        """The same random sweep as earlier versions draw it: no point twice."""
        spec = self._unexpanded()
        spec._has_distinct_draws = True
        return spec

    def _unexpanded(self, *names: str) -> SweepSpec:
        """A copy without these cached properties, by default without all that follow from its points."""
        spec = self.model_copy()
        for name in names or ("expansion", "trials", "kinds"):
            spec.__dict__.pop(name, None)
        return spec

    @cached_property
    def expansion(self) -> Expansion:
        """Its trials and how often they are there, see `expand`."""
        return expand(self, self._source, self._suggestions, recorded=self._recorded, distinct=self._has_distinct_draws)

    @property
    def tuning_trials(self) -> list[SweepTrial]:
        """Its trials that no decision has added."""
        return self.expansion.trials

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """Its trials, each once."""
        if not self.decides:
            return self.expansion.trials
        added = added_trials(self, self.expansion.trials, self._decisions, self._added)
        return with_cells([*self.expansion.trials, *added], self.written, self.tuned)

    @property
    def repetition(self) -> str:
        """What a reader of its counts has to know if points are repeated; empty if none is."""
        points, different = self.expansion.points, self.expansion.different
        if points == different:
            return ""
        counted = (
            f"{points} draws, {different} different points"
            if self.method == "random"
            else (f"{points} points in the grid, {different} different ones")
        )
        return f"{counted}: a repeated one is the same trial and is run once"

    @cached_property
    def kinds(self) -> list[TrialConfig]:
        """One config of each kind of trial: kinds differ in more than scalars."""
        return [trial.config for trial in kinds(self.trials)]

    @property
    def corners(self) -> list[TrialConfig]:
        """Stand-ins for the points that bayes has not proposed yet."""
        return corners(self, self._source, recorded=self._recorded)

    @cached_property
    def middles(self) -> list[SweepTrial]:
        """Stand-ins for trials that bayes has not proposed yet: of each variant one."""
        return middles(self, self._source, recorded=self._recorded)

    @property
    def directions(self) -> dict[str, str]:
        """By metric that a task of a user's own declares, `minimize` or `maximize`."""
        tasks = [component("task", config.task) for config in [*self.kinds, *self.corners]]
        return {
            f"{split}/{name}": goal
            for task in tasks
            for name, goal in (task.metrics or {}).items()
            for split in ("val", "test")
        }

    @property
    def preregistration(self) -> Preregistration:
        """Its claims, each with its metric, and what their answers depend on."""
        default = metric_reported(self.metric.name, self.protocol)
        claims = tuple(one.model_copy(update={"metric": one.metric or default}) for one in self.claims)
        return Preregistration(claims, self._design if claims else {})

    @property
    def _design(self) -> dict[str, str]:
        ids = sorted(trial.trial_id for trial in self.tuning_trials) if self.method != "bayes" else []
        what = json.dumps(ids or [self.settings.space, self.points])
        digest = hashlib.sha256(what.encode()).hexdigest()[:8]
        return {
            "method": self.method,
            "metric": f"{self.metric.name} ({self.metric.goal})",
            "tuned": ", ".join(sorted(self.tuned)) or "nothing",
            "seeds": ", ".join(map(str, self.seeds)),
            "early_terminate": self.settings.early_terminate,
            "trials" if ids else "space": f"{len(ids)} (hash {digest})" if ids else f"hash {digest}",
            **({"protocol": str(self.protocol)} if self.protocol else {}),
            **({"replicate": json.dumps(self.replicate.plan())} if self.replicate else {}),
        }

    def _check_decisions(self) -> None:
        """Whether claims, protocol and replication are about cells that the sweep has."""
        if not (self.claims or self.decides):
            return
        trials, configs = self.tuning_trials, [*self.corners, *self.kinds]
        if self.method == "bayes":
            for key in [key for key in ("claims", "replicate") if getattr(self, key)]:
                require_known_cells(self, key, self._source)
            trials = with_cells(self.middles, self.written, self.tuned)
        check_claims(self, self.preregistration.claims, trials, configs, self._source)
        check_cells(self, trials, configs, self._source)

    @property
    def settings(self) -> Settings:
        """What a launch keeps of it besides its trials."""
        early, is_search = self.early_terminate, self.method != "grid"
        space = [{name: entry.model_dump(exclude_none=True) for name, entry in one.items()} for one in self.space]
        draws = {"replacement": True} if self.method == "random" and not self._has_distinct_draws else {}
        return Settings(
            method=self.method,
            metric=RecordedMetric(self.metric.name, self.metric.goal, self.metric.target),
            tuned=tuple(self.tuned),
            fields=self.written,
            seeds=len(self.seeds),
            points=self.points if self.method == "bayes" else None,
            by_points=self.by_points,
            launch=self.launch.resources,
            project=self.project,
            entity=self.entity,
            early_terminate="none" if early is None else _in_words(early),
            space=json.dumps({"search_seed": self.search_seed, "space": space, **draws}) if is_search else "",
            ranges=tuple(ranges(self)) if is_search else (),
            directions=self.directions,
            text=self.text,
            title=self._title,
            protocol=None if self.protocol is None else self.protocol.model_dump(exclude_defaults=True),
            replicate=None if self.replicate is None else self.replicate.plan(),
        )

    def as_sweep(self) -> Sweep:
        """The sweep as a launch would keep it."""
        return Sweep(self.name, self.settings, self.trials)


def _in_words(model: BaseModel) -> str:
    return " ".join(f"{name}={value}" for name, value in model.model_dump(exclude_none=True).items())
