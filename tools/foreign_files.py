"""How W&B sweep files of a folder plan: as they are, with the printed block, and after `polysweep import`.

    python tools/foreign_files.py FOLDER

What is `GIVEN` is told to the import, in place of what the file may have: a W&B file names no task, and
`model: resnet50` is a part of the user's own. So what is counted is how the format is read.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.translation import translate
from polysweep.sweeps.spec.yaml_lines import SpecError, read_text

GIVEN: Final[dict[str, Any]] = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "constant"}
NEEDED: Final[dict[str, Any]] = {"lr": 0.1, "rho": 0.05}
COUNT: Final = 10
"""Trials of a search that names no number."""


def main(folder: str) -> None:
    """Print how many files plan in which way, and the commonest reasons of those that do not."""
    counts, reasons = Counter[str](), Counter[str]()
    for path in sorted(Path(folder).iterdir()):
        counts["files"] += 1
        try:
            text = read_text(path)
            data = yaml.safe_load(text)
        except (SpecError, yaml.YAMLError) as error:
            reasons[f"no YAML ({type(error).__name__})"] += 1
            continue
        counts["plan unchanged"] += not _problems(text, data)
        shown = _problems(text, data)
        block = re.search(r"^rename:\n(?:  .*(?:\n|$))+", "\n".join(shown), flags=re.MULTILINE)
        renamed = re.sub(r"^rename:.*\n(?:[ -].*\n)*", "", text + "\n", flags=re.MULTILINE) if block else text
        left = _problems(renamed + (block[0] if block else ""), data)
        counts["names are all read with the block"] += not any("unknown parameter" in line for line in left)
        counts["plan with the block and what is missing"] += _imports(renamed + (block[0] if block else ""))
        translation = _translated(text)
        counts["plan after import, with what is missing"] += not translation
        for line in translation:
            reasons[re.sub(r"'[^']*'|\d[\d.e-]*", "_", line)[:90]] += 1
    for what, count in counts.items():
        print(f"{count:5} {what}")
    for reason, count in reasons.most_common(20):
        print(f"{count:5} {reason}")


def _problems(text: str, data: Any) -> list[str]:
    """What is wrong with a file, a line each."""
    count = COUNT if isinstance(data, dict) and data.get("method", "grid") != "grid" and "run_cap" not in data else None
    try:
        SweepSpec.parse(text, "file", "file", count=count)
    except SpecError as error:
        return error.shown.splitlines()
    return []


def _translated(text: str) -> list[str]:
    """What is left to do after an import that is given what the file lacks."""
    settings = dict(GIVEN)
    for _ in range(4):
        try:
            left = translate(text, "file", "file", settings).left
        except SpecError as error:
            return [error.reason]
        more = {
            name: value for name, value in NEEDED.items() if any(line.startswith(f"{name}: missing") for line in left)
        }
        if not more:
            break
        settings |= more
    return [line for line in left if "--count N" not in line]


def _imports(text: str) -> bool:
    """Whether a file with renamed names plans with what it lacks, without a name that is left out."""
    names = "\n".join(_problems(text, yaml.safe_load(text)))
    return "unknown parameter" not in names and not _translated(text)


if __name__ == "__main__":
    main(sys.argv[1])
