"""What README and docs/ name exists: commands with their options, make targets, files, links, specs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from polysweep.cli import app
from polysweep.sweeps.spec.spec import SweepSpec
from tests.support.pages import anchors_of, blocks_of, pages, prose_of
from tests.support.project import ROOT

MAKE_TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.)+(?:py|md|yaml|toml|json|svg|png|csv|j2|in))(?::([\w.]+))?`")
GENERATED = ("my_lab/", "polysweep-", "quickstart-", "theory/", "dist/")  # a reader's own, or written by commands
each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)


def lines_of_blocks(page: Path) -> list[str]:
    """The page's command lines without comments; what stands in brackets may be left out, so it is taken too."""
    blocks = [block for language in ("bash", "sh") for block in blocks_of(page, language)]
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [line for line in (re.sub(r"\s#.*|[\[\]]", "", line).strip() for line in lines) if line]


def require_command(line: str, *, complete: bool) -> None:
    """Fail unless the line's command and options exist; a complete one also has every argument that it needs."""
    program, *arguments = shlex.split(line)
    if program == "make":
        assert set(arguments) <= set(MAKE_TARGETS), line
    elif program == "polysweep" and arguments[0] != "COMMAND":
        group = typer.main.get_command(app)
        commands = {"": group, **group.commands}  # type: ignore[attr-defined]
        name, *rest = arguments if not arguments[0].startswith("-") else ["", *arguments]
        assert name in commands, line
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= {"--help", *options}, line
        if complete and name:
            commands[name].make_context(name, rest)


@each_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in lines_of_blocks(page):
        require_command(line, complete=True)
    for line in re.findall(r"`((?:polysweep|make) [^`]+)`", prose_of(page).replace("\n", " ")):
        require_command(line, complete=False)


@each_page
def test_every_file_and_function_named_exists(page: Path) -> None:
    for name, attribute in PATH.findall(prose_of(page)):
        if name.startswith(GENERATED):
            continue
        assert (ROOT / name).exists(), name
        source = (ROOT / name).read_text(encoding="utf-8") if attribute else ""
        for part in filter(None, attribute.split(".")):
            assert re.search(rf"\b(def|class) {part}\b|^{part}\b.* = ", source, re.MULTILINE), f"{name}:{attribute}"


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        file, _, anchor = target.partition("#")
        linked = page if not file else page.parent / file
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked), target


@each_page
def test_every_spec_is_valid(page: Path) -> None:
    if page.name == "extending.md":
        return  # its parts are the reader's own: test_plugins runs it
    for text in blocks_of(page, "yaml"):
        SweepSpec.parse(text, str(page))


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8")))
    assert listed == {page.name for page in pages()} - {"README.md", "index.md"}
    in_readme = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert listed <= in_readme


def test_the_example_specs_are_those_of_the_text() -> None:
    (grid,) = blocks_of(ROOT / "docs/spec.md", "yaml")
    (bayes,) = blocks_of(ROOT / "docs/searches.md", "yaml")
    assert len(SweepSpec.parse(grid, "spec.md").trials) == 2 * 72
    assert SweepSpec.parse(bayes, "searches.md").points == 30


def test_the_update_is_a_few_named_calls_away_from_the_command() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("## From the command to the update")[2].partition("\n## ")[0]
    hops = re.findall(r"^\d+\. `([\w/.]+):[\w.]+`", section, re.MULTILINE)
    assert len(hops) == len(re.findall(r"^\d+\. ", section, re.MULTILINE)) <= 13
    assert sum(hop.startswith("trainer/") for hop in hops) <= 4 and hops[-1].startswith("trainer/optimizers/")
