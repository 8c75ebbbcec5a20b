"""What a W&B server says of runs, made fit to be shown: other people's projects hold anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from polysweep.trainer.text import one_line
from polysweep.trainer.wandb_runs import ORIGIN

LONGEST: Final = 120
"""Characters of a value of a config; a longer one is cut, and has its length and hash behind it."""
MOST_LISTED: Final = 20


def short(text: str) -> str:
    """Readable text of a bounded length; two long texts that differ still do."""
    if len(text) <= LONGEST:
        return one_line(text)
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{one_line(text[: LONGEST // 2])}... ({len(text)} characters, {digest})"


def fit(value: Any) -> Any:
    """A value of a config, with its text and names readable and short; a list that is long is its text."""
    if isinstance(value, str):
        return short(value)
    if isinstance(value, Mapping):
        return {short(str(key)): one if key == ORIGIN else fit(one) for key, one in value.items()}
    if isinstance(value, list):
        text = json.dumps(value)
        return value if len(text) <= LONGEST and text.isprintable() else short(text)
    return value


def listed(names: Iterable[str]) -> str:
    """Names in order, not more than can be read."""
    shortened = sorted(map(short, names))
    more = f" and {len(shortened) - MOST_LISTED} more" if len(shortened) > MOST_LISTED else ""
    return ", ".join(shortened[:MOST_LISTED]) + more or "none"
