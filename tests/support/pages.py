"""The pages that a reader sees, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.project import ROOT


def pages() -> list[Path]:
    """The README first, then docs/ by name."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path, language: str) -> list[str]:
    """The page's fenced blocks in a language, such as `bash`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def prose_of(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$|^    .*?$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """What a link to a heading of the page ends in after `#`."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
