"""The vocabulary check finds phrases in comments, texts and pages, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from tools.words import complaints, empty_names, tracked


def test_a_phrase_is_found_in_texts_and_comments_with_a_better_one(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    code = 'mend = 1  # for want of\nprint(f"{say}: nobody answers there")\n"""Runs lie\n    in it."""\n'
    file.write_text(code)
    found = list(complaints(file))
    assert [line.removeprefix(f"{file}:") for line in found] == [
        "1: 'for want of': better: for lack of",
        "2: 'nobody answers there': better: no server is listening at ...",
        "3: 'lie in': better: is in, is stored in",
    ]


def test_a_page_is_read_as_a_whole(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nIt is made\nanew, surely.\n")
    assert [line.split(":")[1] for line in complaints(page)] == ["4", "4"]


def test_a_local_that_names_nothing_is_found_once_per_function(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("def f(given):\n    found = 1\n    found = given\n    return found\nfound = f(made=2)\n")
    assert [line.removeprefix(f"{file}:") for line in empty_names(file)] == [
        "2: local 'found' of f: name what it holds",
        "1: local 'given' of f: name what it holds",
    ]


def test_code_and_pages_are_checked() -> None:
    names = {path.name for path in tracked()}
    assert {"README.md", "architecture.md", "cli.py", "stack.py", "Makefile"} <= names and "words.py" not in names
