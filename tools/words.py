"""Refuses words that a reader has to translate, in docstrings, comments, messages and pages, and empty names of locals.

python tools/words.py [FILE...]     default: the code, the tools and the pages that git tracks
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CHECKED: Final = (
    "README.md", "Makefile", "docs", "docker", "polysweep", "trainer", "sweeps", "analysis", "tools",
    "benchmarks",
)  # fmt: skip

BETTER: Final = {
    r"mend(s|ed|ing)?": "fix",
    r"(nobody|no one) (answers|listens)( there)?": "no server is listening at ...",
    r"(lie|lies|lay) in": "is in, is stored in",
    r"(lie|lies|lay) behind": "have passed, are done",
    r"surely": "certainly, or leave it out",
    r"(go|goes|going|went) on where": "resumes",
    r"(begin|begins) so": "is ambiguous (N matches)",
    r"has no such": "name what is missing: task 'ridge' does not log ...",
    r"then out": "before exiting",
    r"it says that it": "belongs to, claims to",
    r"(has|have) gone from": "is no longer in",
    r"for want of": "for lack of",
    r"anew": "again",
    r"(stood|stands|stand) still": "has not changed",
    r"(has|have) not the": "does not have the",
    r"(let|lets|letting) go of": "release",
    r"put right": "repair",
    r"out of reach": "unreachable",
    r"where (nobody|somebody|none|nothing)": "if no one, if someone, if nothing",
    r"where (there is|there are|one is|it is not|that is not)": "if (a condition; 'where' is a place)",
    r"whoever (has|is)": "a process that has, a caller that is",
    r"(whence|whatsoever|wherein|thereof|hitherto)": "plain words",
    r"what (has )?(come|become|becomes) of": "how ... ended, the result of",
    r"(is|are|be) (said|told) (once|so)": "is reported once",
    r"(broken|break|breaks) off": "interrupted",
    r"in no mean": "excluded from every mean",
}
PATTERN: Final = re.compile("|".join(rf"(?P<p{n}>\b(?:{text})\b)" for n, text in enumerate(BETTER)), re.IGNORECASE)

EMPTY_NAMES: Final = frozenset({"found", "given", "known", "made", "said"})
"""Of local variables in the product: each says that there is something, and not what."""


def tracked() -> list[Path]:
    """The files that are checked."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *CHECKED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    own = Path(__file__).resolve()
    paths = [ROOT / name for name in listed if name.endswith((".py", ".md", ".yaml", ".j2", "Makefile"))]
    return [path for path in paths if path.is_file() and path != own]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What a reader reads, with the number of its first line: of Python its comments and texts, else every line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


def complaints(path: Path) -> Iterator[str]:
    """`file:line: 'phrase': better: ...`, one per phrase."""
    phrases = list(BETTER.values())
    for first, text in prose(path):
        lines = re.sub(r"\n[ \t#]*", "\n", text)  # a phrase may go over the end of a line
        for match in PATTERN.finditer(lines.replace("\n", " ")):
            line = first + lines.count("\n", 0, match.start())
            number = int(str(match.lastgroup).removeprefix("p"))
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            yield f"{shown}:{line}: {match.group()!r}: better: {phrases[number]}"


def empty_names(path: Path) -> Iterator[str]:
    """`file:line: ...`, one per function of a Python file and local variable that names nothing."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {node.arg: node.lineno for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.setdefault(node.id, node.lineno)
        for name in sorted(EMPTY_NAMES & set(names)):
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            yield f"{shown}:{names[name]}: local {name!r} of {function.name}: name what it holds"


def main() -> int:
    """Print what is refused; 1 if anything is."""
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked()
    lines = [line for path in paths for line in complaints(path)]
    lines += [line for path in paths if path.suffix == ".py" for line in empty_names(path)]
    print("\n".join(lines) or f"words: {len(paths)} files, no phrase to better")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
