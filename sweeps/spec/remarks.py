"""What is allowed in a spec, as in W&B, but probably read otherwise than it was meant: one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from polysweep.sweeps.spec.expansion import candidates_of
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parameter import EXPONENTS, Parameter
from polysweep.trainer.text import brief


def remarks_on_spec(spec: SpecFields) -> list[str]:
    """The remarks on every entry of `parameters` and `variants`, on `early_terminate` and `launch`."""
    entries = [entry for parameters in (spec.parameters, *spec.variants) for entry in parameters.items()]
    texts = [f"{name!r}: {text}" for name, one in entries for text in _remarks(one, spec.method)]
    early = spec.early_terminate
    if early is not None and early.ignored:
        counted = "'max_iter' and 's' count" if "min_iter" in early.ignored else "'min_iter' counts"
        texts.append(f"early_terminate: ignored: {', '.join(early.ignored)}, because {counted}, as in W&B")
    if spec.budget:
        texts += _on_budget(spec, spec.budget)
    if spec.launch.resources.gpus > 1:
        texts.append(f"launch.gpus: {spec.launch.gpus:g}: a stack is trained on one GPU, the others of its stack idle")
    return texts


def _on_budget(spec: SpecFields, budget: int) -> Iterator[str]:
    for variant, candidates in enumerate(candidates_of(spec, budget)):
        if len(candidates) < budget:
            which = f"variant {variant + 1} has" if len(spec.variants) > 1 else "there are"
            yield f"protocol.budget: {budget}, but {which} only {len(candidates)} different candidates"


def _remarks(parameter: Parameter, method: str) -> Iterator[str]:
    if parameter.values:
        yield from _on_repeated_values(parameter, method)
    if parameter.min is None or parameter.max is None:
        return
    low, high, kind = parameter.min, parameter.max, parameter.kind
    if kind in EXPONENTS and _look_like_values(low, high):
        ends = parameter.ends
        assert ends is not None
        other = f"{kind}_values" if low > 0 else "q_uniform" if kind.startswith("q_") else "uniform"
        yield (
            f"{kind} reads min and max as natural logarithms, as W&B does: values from {ends[0]:.6g} to {ends[1]:.6g}; "
            f"for values from {low:g} to {high:g} use {other}"
        )
    elif kind.startswith("q_"):
        yield from _on_rounding(parameter, low, high, method)


def _look_like_values(low: float, high: float) -> bool:
    """Whether exponents are hardly meant as such: e^low to e^high would be about 1, or huge."""
    return low >= 0 and (high <= 1 or 0 < low < 0.1 or high >= 10)


def _on_repeated_values(parameter: Parameter, method: str) -> Iterator[str]:
    meaning = "in a grid it is there once" if method == "grid" else "it is drawn that much more often"
    values = {_key(value): value for value in parameter.values or ()}
    for key, count in Counter(map(_key, parameter.values or ())).items():
        if count > 1:
            yield f"{brief(values[key])} is listed {count} times: {meaning}"


def _key(value: object) -> object:
    """The same for equal values; true is not 1."""
    return isinstance(value, bool), value if isinstance(value, str | int | float) else repr(value)


def _on_rounding(parameter: Parameter, low: float, high: float, method: str) -> Iterator[str]:
    """Where a multiple of q is outside of the range, and where a grid ends before `max`."""
    q, kind, ends = parameter.q, parameter.kind, parameter.ends
    assert ends is not None
    if method == "grid":
        last = (parameter.grid or [low])[-1]
        if abs(last + q - high) < 1e-9 * q:
            yield f"a grid of {kind} ends below max, as in W&B: its last value is {last:g}, not {high:g}"
    elif kind not in EXPONENTS and (ends[0] < low or ends[1] > high):
        yield f"{kind} rounds to multiples of {q:g}, as W&B does: values from {ends[0]:g} to {ends[1]:g}"
