"""Which of our names a foreign one may be: of parameters, of the options of chosen components, of the metric."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from polysweep.sweeps.spec.parsing import Parameters
from polysweep.sweeps.spec.synonyms import means, readings, same_way
from polysweep.trainer.components.plugins import component, metrics_of
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.config import COMPONENT_FIELDS, OPTION_FIELDS, TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import METRICS

LEAST_LIKENESS: Final = 0.85
"""Of two spellings, by difflib: `weigth_decay` is like `weight_decay`, and `test_batch_size` is not `batch_size`."""
LEAST_LETTERS: Final = 5
"""`mode` is as like `model` as many a slip of the finger."""
USUAL: Final[Mapping[str, str]] = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "constant"}
"""What a component that a spec lacks is taken to be, so that what else is wrong is found too."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SPLITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("train", "training", "tr"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), "val"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("loss", "losses", "nll", "crossentropy", "xent", "ce"), "loss"),
    **dict.fromkeys(("accuracy", "acc", "accu", "accuracies", "top1", "acc1"), "top1"),
    **dict.fromkeys(("top5", "acc5"), "top5"),
    "ece": "ece",
}
_SAYS_NOTHING: Final = frozenset(
    ("best", "max", "min", "final", "last", "epoch", "mean", "avg", "average", "score", "metric", "metrics", "model",
     "top", "1", "5", "at", "the", "of", "per", "on", "end", "total", "set", "cross", "entropy", "categorical",
     "sparse", "multiclass", "classification", "classifier", "overall", "global")
)  # fmt: skip
"""Words of a metric's name that leave its meaning as it is."""


def in_our_case(kind: str, name: Any) -> Any:
    """The component that is called so but for the case of its letters, `SGD` as `sgd`; else the name itself."""
    by_letters = {ours.lower(): ours for ours in REGISTRY["optimizer" if kind == "base" else kind]}
    return by_letters.get(name.lower(), name) if isinstance(name, str) else name


def chosen_options(spaces: Sequence[Parameters]) -> list[str]:
    """The options of all components that a sweep's parameters choose, as `model_options.hidden`.

    If they choose none of a kind, those of the usual one, which is what the sweep is told to add.
    """
    options: dict[str, None] = {}
    for space in spaces:
        for kind in COMPONENT_FIELDS:
            bases = (space["base"].grid or [None]) if kind == "optimizer" and "base" in space else [None]
            chosen = (space[kind].grid or []) if kind in space else [USUAL[kind]]
            for name, base in itertools.product(chosen, bases):
                try:
                    fields = component(kind, in_our_case(kind, name)).on(base).options.model_fields
                except ConfigError:
                    continue
                options |= dict.fromkeys(f"{kind}_options.{field}" for field in fields)
    return list(options)


def meanings(
    names: Iterable[str], taken: Collection[str], options: Iterable[str], *, by_spelling: bool
) -> dict[str, str]:
    """By foreign name ours, for those that mean one; none twice, and none that the file has under its own name."""
    free = [name for name in (*TrialConfig.model_fields, *options) if name not in {*taken, *OPTION_FIELDS}]
    proposed: dict[str, str] = {}
    for name in names:
        ours = next(_candidates(name, free, by_spelling=by_spelling), None)
        if ours is not None:
            proposed[name] = ours
            free.remove(ours)
    return proposed


def _candidates(foreign: str, free: Sequence[str], *, by_spelling: bool) -> Iterator[str]:
    yield from (ours for ours in free if means(foreign, ours.rpartition(".")[2]))
    letters = next(readings(foreign))
    if by_spelling and len(letters) >= LEAST_LETTERS:
        ours_by_letters = {same_way(ours.rpartition(".")[2]): ours for ours in free}
        like = difflib.get_close_matches(letters, ours_by_letters, n=1, cutoff=LEAST_LIKENESS)
        yield from (ours_by_letters[one] for one in like if re.sub(r"\D", "", one) == re.sub(r"\D", "", letters))


def meaning(foreign: str) -> str | None:
    """The field that a name means, whether or not it is free."""
    return next((ours for ours in TrialConfig.model_fields if means(foreign, ours)), None)


def metric_proposal(name: str, *, has_val: bool) -> str | None:
    """Our metric for a foreign name, without a validation set that of the test set; None if it says nothing of ours.

    `val_acc`, `validation accuracy`, `best_val_top1` are val/top1; `loss` alone is that of the evaluation.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    joined = [first + second for first, second in itertools.pairwise(words)]
    splits = {_SPLITS[word] for word in words if word in _SPLITS}
    values = {_VALUES[word] for word in (*words, *joined) if word in _VALUES}
    if "top5" in values:
        values.discard("top1")
    if {"cross", "entropy"} <= set(words):
        values.add("loss")
    explained = {*_SPLITS, *_VALUES, *_SAYS_NOTHING}
    if len(values) != 1 or len(splits) > 1 or any(word not in explained for word in words):
        return None
    split = next(iter(splits), "val")
    return f"{'test' if split == 'val' and not has_val else split}/{next(iter(values))}"


def metric_of(data: Mapping[str, Any]) -> str | None:
    """The metric's name as the file has it."""
    metric = data.get("metric")
    name = metric.get("name") if isinstance(metric, dict) else None
    return name if isinstance(name, str) else None


def is_foreign_metric(name: str | None, spaces: Sequence[Parameters]) -> bool:
    """Whether no chosen task, and none of polysweep's, measures what the metric is called."""
    if name is None or name in METRICS:
        return False
    for space in spaces:
        for task in (space["task"].grid or []) if "task" in space else []:
            try:
                if name in metrics_of(component("task", task)):
                    return False
            except ConfigError:
                continue
    return True
