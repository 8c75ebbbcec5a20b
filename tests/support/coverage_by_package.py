"""`python -m tests.support.coverage_by_package FILE`: what `coverage json` wrote, a line per package."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def by_package(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """The counts of each folder, and of all together."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for name, file in sorted(files.items()):
        counts = {count: file["summary"][count] for count in COUNTS}
        for package in (str(Path(name).parent), "all"):
            packages[package].update(counts)
    total = packages.pop("all", Counter())
    return {**packages, "all": total}


def percent(covered: int, total: int) -> str:
    """With one digit; a dash where there is nothing to cover."""
    return f"{100 * covered / total:.1f} %" if total else "-"


def main() -> None:
    """Print the table."""
    files = json.loads(Path(sys.argv[1]).read_text())["files"]
    print(f"{'package':24} {'statements':>10} {'lines':>9} {'branches':>9}")
    for package, counts in by_package(files).items():
        lines = percent(counts["covered_lines"], counts["num_statements"])
        branches = percent(counts["covered_branches"], counts["num_branches"])
        print(f"{package:24} {counts['num_statements']:>10} {lines:>9} {branches:>9}")


if __name__ == "__main__":
    main()
