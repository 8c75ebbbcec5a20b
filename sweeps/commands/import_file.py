"""`polysweep import`: a W&B sweep file, translated into a spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polysweep.sweeps.console import say, warn
from polysweep.sweeps.spec.sweep import flattened
from polysweep.sweeps.spec.translation import translate
from polysweep.sweeps.spec.yaml_lines import read_settings, read_text
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError, expected


def import_sweep(file: Path, out: Path | None, settings: Sequence[str], *, force: bool = False) -> None:
    """Print the spec of a file, or write it to `out`. Raises `UserError` if that would replace a file."""
    values = read_settings(settings)
    for name in values:
        if name not in TrialConfig.model_fields:
            raise UserError(f"--set {name}: unknown parameter; {expected(name, TrialConfig.model_fields)}")
    if out is not None and out.exists() and not force:
        raise UserError(f"{out}: exists; --force replaces it")
    translation = translate(read_text(file), str(file), file.stem, flattened(values))
    if out is None:
        say(translation.text.removesuffix("\n"))
    else:
        try:
            out.write_text(translation.text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{out}: cannot be written: {error.strerror}") from None
        say(f"{out}: written")
    for one in translation.left:
        warn(f"left to do: {one}")
