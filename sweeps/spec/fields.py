"""The keys of a spec file and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from polysweep.sweeps.spec.hyperband import Hyperband
from polysweep.sweeps.spec.parsing import Parameters
from polysweep.sweeps.spec.preregistration import Claim
from polysweep.sweeps.spec.protocol import Protocol, Replication
from polysweep.sweeps.spec.search import Space
from polysweep.sweeps.spec.sweep import NAME_PATTERN, Resources, Selector
from polysweep.trainer.components.options import Count, PathText, Width, number
from polysweep.trainer.history import METRICS
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings

IGNORED: Final = ("program", "command", "kind", "controller", "job", "image_uri", "apiVersion", "scheduler")
"""Keys of a W&B sweep that mean nothing here: polysweep has its own trainer, searches and cluster."""
MOST_GPUS: Final = 2**20
"""What a Store takes for a number and not for a slip of the finger."""
LEAST_SHARE: Final = 0.0001
"""Of a GPU, which Ray counts in ten thousandths."""
IMPUTE: Final = ("impute", "impute_while_running")
"""Keys of W&B's metric for its own search."""

Amount = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, strict=True)]


def whole_if_many(count: float) -> float:
    """Refuse what Ray cannot give: a part of one GPU beside a whole one, or less than it counts.

    Raises `ValueError`.
    """
    if (count > 1 and count % 1) or 0 < count < LEAST_SHARE:
        raise ValueError(f"at least {LEAST_SHARE} of a GPU, and whole GPUs if more than one")
    return count


_SEEDS_SCHEMA: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
    ]
}


class Strict(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(Selector, Strict):
    """What selects the best epoch and the tuned parameters."""

    name: Annotated[str, Field(examples=list(METRICS))]  # a history column that the tasks measure: checks.check_metric
    goal: Literal["maximize", "minimize"]  # W&B's default, minimize, is filled in by `reading`
    target: Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)] | None = None
    """Once a trial reaches it, no further trial is started."""
    impute: Any = None  # of W&B; here a point that fails counts as worse than all others
    impute_while_running: Any = None


def known_measurement(name: str) -> str:
    """Refuse what no probe measures. Raises `ValueError` with the names that there are."""
    if name != CurvatureSettings.kind:
        CorruptionSettings.of([name], None)
    return name


class Launch(Strict):
    """How trials are run; nothing here changes what a trial is, except that `stack` fixes K at its first start."""

    stack: Literal["auto"] | Width = "auto"  # trials per stack, K
    cpus: Count = 1  # cores, and torch threads, per stack
    gpus: Literal["auto"] | Annotated[Amount, Field(le=MOST_GPUS), AfterValidator(whole_if_many)] = (
        0.0  # GPUs per stack; a fraction shares one, auto measures which
    )
    concurrency: Count | None = None  # stacks at once, by default as many as there is room for
    max_failures: Whole = 3  # how often a trial is retried, from its checkpoint, after an error of its own
    data_dir: PathText | None = None  # folder of the data sets
    checkpoint_seconds: Amount = 1.0  # least time between checkpoints
    keep: Literal["last", "best", "none"] = "last"  # which checkpoint is kept after the end; best: by the metric
    probe: list[Annotated[str, AfterValidator(known_measurement)]] = []
    """What is measured of all trials at the end of a launch: `curvature`, and corruptions such as `blur`, `noise-3`."""

    @model_validator(mode="after")
    def _has_weights(self) -> Self:
        if self.probe and self.keep == "none":
            raise ValueError("probe: only weights can be measured, and with keep: none there are none; last or best")
        return self

    @property
    def device(self) -> str:
        """Where a stack's tensors are stored."""
        return "cuda" if self.gpus else "cpu"

    @property
    def resources(self) -> Resources:
        """What one stack asks for; a whole GPU as long as its share of one is to be measured."""
        return Resources(self.cpus, 1.0 if self.gpus == "auto" else self.gpus, self.concurrency)


class SpecFields(Strict):
    """The keys of a spec file, each value checked by itself."""

    name: Annotated[str, Field(pattern=f"^{NAME_PATTERN.pattern}$"), WithJsonSchema({"type": "string"})]
    method: Literal["grid", "random", "bayes"] = "grid"
    metric: Metric = Metric(name="test/top1", goal="maximize")
    parameters: Parameters
    variants: list[Parameters] = [{}]  # conditional parameters: each variant has its own
    tuned: list[str] = []  # chosen once per cell by the mean over seeds
    seeds: Annotated[list[int], WithJsonSchema(_SEEDS_SCHEMA)] = [0]
    protocol: Protocol | None = None  # which seeds choose, and which report
    replicate: Replication | None = None  # seeds are added until these comparisons are decided
    run_cap: Count | None = None  # total number of trials
    early_terminate: Hyperband | None = None
    claims: list[Claim] = []  # what the sweep is to answer, frozen by its first launch
    search_seed: Whole = 0  # of random draws and of bayes
    rename: dict[str, str] = {}  # foreign names of parameters, options and the metric: `{learning_rate: lr}`
    description: str | None = None
    project: str | None = None  # of W&B, unless WANDB_PROJECT is set
    entity: str | None = None  # of W&B, unless WANDB_ENTITY is set
    count: Any = None  # taken for `run_cap` where that is missing
    program: Any = None
    command: Any = None
    kind: Any = None
    controller: Any = None
    job: Any = None
    image_uri: Any = None
    apiVersion: Any = None  # noqa: N815  # W&B's spelling
    scheduler: Any = None  # of W&B Launch; a scheduler of the step size is a parameter
    launch: Launch = Launch()

    @property
    def ignored(self) -> list[str]:
        """The keys in the file that mean nothing here."""
        keys = [key for key in IGNORED if getattr(self, key) is not None]
        return keys + [f"metric.{key}" for key in IMPUTE if getattr(self.metric, key) is not None]

    @property
    def space(self) -> Space:
        """By variant, its parameters and the shared ones; the seed is not among them."""
        return [{**self.parameters, **variant} for variant in self.variants]

    @property
    def points(self) -> int | None:
        """How many points `run_cap` allows; None if it sets no limit."""
        return None if self.run_cap is None else self.run_cap // len(self.seeds)

    @property
    def budget(self) -> int | None:
        """Candidates that are drawn for every cell; None if it sets none."""
        return self.protocol.budget if self.protocol else None

    @property
    def report_seeds(self) -> list[int]:
        """The seeds of a cell's means before any are added."""
        return self.protocol.report_on if self.protocol else self.seeds

    @property
    def decides(self) -> bool:
        """Whether its results add trials to it."""
        return self.protocol is not None or self.replicate is not None

    @property
    def by_points(self) -> bool:
        """Whether one stack is one point with all its seeds, because results decide what is run."""
        return self.method == "bayes" or self.early_terminate is not None

    @property
    def written(self) -> tuple[str, ...]:
        """The parameters in the order of the file."""
        return tuple(dict.fromkeys([*self.parameters, *(name for variant in self.variants for name in variant)]))
