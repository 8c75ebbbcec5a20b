"""The options of built-in components: flat, typed, unknown ones refused. Imports neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

LARGEST_COUNT: Final = 10**9
"""Of epochs, rows, units ...: a larger number is a slip of the finger, and beyond 2^63 nothing can hold it."""
LARGEST_MATRIX: Final = 10**7
"""Entries of a convex problem's A: 80 MB."""
LARGEST_COST: Final = 2 * 10**9
"""n d^2 of a convex problem: factoring A takes about ten seconds on one core."""
MAX_STACK: Final = 4096
"""The largest K. A stack is padded to its K, so a K of a million would train a million rows for four trials."""


class Options(BaseModel):
    """Options of a component: flat, typed, unknown ones refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Numbers = TypeVar("Numbers", bound=Sequence[int])


def number(value: object) -> object:
    """Refuse true and false where a number is meant: pydantic would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


def path_text(value: str) -> str:
    """Refuse what can be no path on any file system. Raises `ValueError`."""
    if "\0" in value:
        raise ValueError("a path must not contain a NUL character")
    return value


def increasing(values: Numbers) -> Numbers:
    """Refuse a list that does not increase. Raises `ValueError`."""
    for before, value in pairwise(values):
        if value <= before:
            raise ValueError(f"must increase, but {value} comes after {before}")
    return values


Count = Annotated[int, BeforeValidator(number), Field(ge=1, le=LARGEST_COUNT)]
Whole = Annotated[int, BeforeValidator(number), Field(ge=0, le=LARGEST_COUNT)]
Width = Annotated[int, BeforeValidator(number), Field(ge=1, le=MAX_STACK)]  # K, trials per stack
PathText = Annotated[str, Field(min_length=1), AfterValidator(path_text)]
Share = Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)]
Flag = Annotated[bool, Field(strict=True)]


class MLPOptions(Options):
    """Options of the model `mlp`."""

    hidden: Annotated[Count, Field(le=10**5)] = 64  # units per hidden layer
    layers: Annotated[Whole, Field(le=1000)] = 2  # hidden layers; 0 is softmax regression, which is convex
    dropout: Share = 0.0  # probability that a hidden unit is dropped in training


class ProblemOptions(Options):
    """What the convex problems share. Raises `ValueError` for a size that takes minutes or gigabytes to build."""

    n: Count  # rows of A
    d: Count  # columns of A
    problem_seed: Annotated[int, BeforeValidator(number), Field(ge=0, lt=2**63)] = 0
    # of A, b and x*; a trial's own seed draws x^0 and the mini-batches
    record_every: Count = 1  # steps between two rows of the history, which are what `epochs` counts
    check: Flag = False  # refuse a radius that the paper's theorems do not cover

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if self.n * self.d > LARGEST_MATRIX or self.n * self.d**2 > LARGEST_COST:
            raise ValueError(
                f"n = {self.n} with d = {self.d} is too large to be solved in closed form: n d may be "
                f"{LARGEST_MATRIX:.0e}, n d^2 {LARGEST_COST:.0e}"
            )
        return self


class RidgeOptions(ProblemOptions):
    """Options of the task `ridge`."""

    n: Count = 100  # rows of A
    d: Count = 100  # columns of A
    matrix: Literal["conditioned", "gaussian"] = "conditioned"  # by its condition number, or of normal entries
    condition: Annotated[float, BeforeValidator(number), Field(ge=1, le=1e7)] = 10.0
    # of A: largest by least singular value; above 1e7 float64 has no digits of mu left
    lambda_r: Annotated[float, BeforeValidator(number), Field(ge=0)] = 0.0  # of the regulariser
    consistent: Flag = True  # b = A x with x drawn; otherwise b is drawn


class LogisticOptions(ProblemOptions):
    """Options of the task `logistic`."""

    n: Count = 200  # rows of A, the samples
    d: Count = 20  # columns of A, the features
    flipped: Annotated[float, BeforeValidator(number), Field(gt=0, lt=0.5)] = 0.2  # share of labels turned round


class MomentOptions(Options):
    """Options of `adasam` and `lightsam-iii`."""

    beta1: Share = 0.9  # of the first moment
    beta2: Share = 0.99  # of the second moment
    eps: Annotated[float, BeforeValidator(number), Field(gt=0)] = 1e-8  # its square is the second moment before step 0


class AdamOptions(Options):
    """Options of `adam` and `adamw`, and of `usam` and `sam` with such a base: defaults of torch.optim."""

    beta1: Share = 0.9  # of the first moment
    beta2: Share = 0.999  # of the second moment
    eps: Annotated[float, BeforeValidator(number), Field(gt=0)] = 1e-8  # added to the root of the second moment


class AccumulatorOptions(Options):
    """Options of `lightsam-i` and `lightsam-ii`."""

    eps: Annotated[float, BeforeValidator(number), Field(gt=0)] = 1e-8  # its square is the sum before step 0


Falling = Annotated[float, BeforeValidator(number), Field(gt=0, lt=1)]  # what a step size is multiplied by


class StepOptions(Options):
    """Options of `step`, as of torch's StepLR."""

    step_size: Count  # epochs between two falls
    gamma: Falling = 0.1


class MultiStepOptions(Options):
    """Options of `multistep`, as of torch's MultiStepLR."""

    milestones: Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(increasing)]
    # epochs, counted from 0, from which it is smaller
    gamma: Falling = 0.1


class WarmupOptions(Options):
    """Options of `warmup-cosine`; `start_factor` as of torch's LinearLR."""

    warmup_epochs: Annotated[float, BeforeValidator(number), Field(ge=0)]  # epochs, also a part of one
    start_factor: Annotated[float, BeforeValidator(number), Field(gt=0, lt=1)] = 1 / 3  # of lr, in the first step

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if not self.warmup_epochs and self.start_factor != type(self).model_fields["start_factor"].default:
            raise ValueError("start_factor: nothing is warmed up in warmup_epochs 0; leave it out")
        return self


class OneCycleOptions(Options):
    """Options of `one-cycle`, as of torch's OneCycleLR, whose max_lr is the field `lr`."""

    pct_start: Share = 0.3  # share of the steps in which it grows
    div_factor: Annotated[float, BeforeValidator(number), Field(ge=1)] = 25.0  # the first step size is lr / div_factor
    final_div_factor: Annotated[float, BeforeValidator(number), Field(ge=1)] = 1e4  # the last: that / final_div_factor


Positive = Annotated[float, BeforeValidator(number), Field(gt=0)]
NonNegative = Annotated[float, BeforeValidator(number), Field(ge=0)]
Part = Annotated[float, BeforeValidator(number), Field(gt=0, le=1)]  # of a whole, which may be all of it


class ASAMOptions(Options):
    """Options of `asam`."""

    eta: NonNegative = 0.01  # added to the size of every parameter


class GSAMOptions(Options):
    """Options of `gsam`."""

    alpha: NonNegative = 0.4  # how much of g's part orthogonal to h is taken off


class FSAMOptions(Options):
    """Options of `f-sam`."""

    sigma: NonNegative = 1.0  # how much of the average gradient is taken off
    beta: Share = 0.9  # of the average, the publication's lambda


class LookSAMOptions(Options):
    """Options of `looksam`."""

    every: Count = 5  # steps from one look at e to the next, the publication's k
    alpha: NonNegative = 0.7  # length of what is kept of the last look, relative to the gradient


class ESAMOptions(Options):
    """Options of `esam`."""

    beta: Part = 0.6  # probability that a coordinate is perturbed
    gamma: Part = 0.5  # share of the mini-batch whose gradient is followed


class DecSPSOptions(Options):
    """Options of `decsps`."""

    c0: Positive = 1.0  # the step size is divided by c0 sqrt(t + 1)


class MoMoOptions(Options):
    """Options of `momo`."""

    beta: Share = 0.9  # of the averages of loss, gradient and their products


class PublishedOptions(Options):
    """Options of the published baselines that have two guarantees."""

    setting: Literal["deterministic", "stochastic"] = "deterministic"  # the guarantee whose radius and step size
