"""The W&B Report: against the client library's own model, and the loopback server as far as that goes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb
import wandb_workspaces.reports.v2 as wr

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.report import html, wandb_report
from polysweep.analysis.report.wandb_panels import Panels, summary_id
from polysweep.analysis.report.wandb_report import markdown_parts, publish_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.wandb_client import end_client
from tests.support.drawn import NAMES
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, a_run, as_runs, by_lr, foreign, sweep
from tests.support.made_searches import search
from tests.support.published import CIFAR, as_published

pytestmark = pytest.mark.usefixtures("fresh_client")
Run = Callable[..., Any]


@pytest.fixture
def store(wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A sweep whose runs the server has."""
    monkeypatch.setenv("WANDB_PROJECT", "p")
    sweep(tmp_path / "store", by_lr)
    there = Store(str(tmp_path / "store"))
    wandb_server.load("p", as_runs(there, "made"))
    return there


@pytest.fixture
def one_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first figure only: drawing is most of the time."""
    for module in (wandb_report, html):
        monkeypatch.setattr(module, "figures", lambda *a, **options: itertools.islice(figures(*a, **options), 1))


def reports(server: Wandb) -> list[str]:
    return [view for view in server.dump()["views"] if "/runs/" in view]


def markdown(report: Any) -> str:
    return "\n".join(block.text for block in report.blocks if isinstance(block, wr.MarkdownBlock))


@pytest.mark.usefixtures("one_plot")
def test_a_report_is_published_once_and_then_brought_up_to_date(store: Store, wandb_server: Wandb) -> None:
    selection = select(pull("made", store=store))
    address, is_new = publish_report(selection)
    assert is_new and re.fullmatch(r"http://.*/lab/p/reports/polysweep:-made--\w+", address)
    assert publish_report(selection) == (address, False)
    found, run_id = wandb_server.dump(), summary_id("made")
    assert len(reports(wandb_server)) == 1 and reports(wandb_server)[0].endswith("/2"), "one report, saved twice"
    assert [name for name in found["runs"] if name.startswith("polysweep-report-")] == [run_id]
    assert len(found["runs"][run_id]["history"]) == 2 and found["unknown"] == []


def test_the_library_reads_back_what_was_published(store: Store) -> None:
    pulled = pull("made", store=store)
    report: Any = wr.Report.from_url(publish_report(select(pulled))[0])
    assert (report.title, report.entity, report.project) == ("polysweep: made", "lab", "p")
    headings = [block.text for block in report.blocks if isinstance(block, wr.H2)]
    assert headings == ["Summary", "Tables", "Plots", *Panels(pulled).sections(), "Spec"]
    plots, *live = [block for block in report.blocks if isinstance(block, wr.PanelGrid)]
    assert [panel.media_keys for panel in plots.panels] == [[f"plots/{name}"] for name in NAMES]
    assert summary_id("made") in plots.runsets[0].filters and plots.hide_run_sets
    assert all("made" in grid.runsets[0].filters and grid.runsets[0].groupby == ["run.Group"] for grid in live)
    sections = Panels(pulled).sections()
    assert [[panel.title for panel in grid.panels] for grid in live] == [
        [panel.title for panel in panels] for panels in sections.values()
    ], "the panels of the workspace"
    (spec,) = [block for block in report.blocks if isinstance(block, wr.CodeBlock)]
    assert json.loads(spec.code)["name"] == "made"


@pytest.mark.usefixtures("one_plot")
def test_the_same_sweep_is_the_same_report(store: Store, wandb_server: Wandb) -> None:
    def spec() -> Any:
        publish_report(select(pull("made", store=store)))
        return json.loads(reports(wandb_server)[0].partition("/polysweep: made/")[2].rpartition("/")[0])

    assert spec() == spec()


def test_its_tables_are_those_of_the_command(tmp_path: Path) -> None:
    """Line by line, the notes as a list: a page would run them together."""

    def score(config: TrialConfig) -> list[float] | str:
        return "diverged" if config.seed == 2 else by_lr(config)

    def lines(text: str) -> list[str]:
        return [re.sub(r"^ *-? *(?=\S)", "", line) for line in text.splitlines() if line]

    for folder, pulled in (("grid", sweep(tmp_path / "grid", score)), ("search", search(tmp_path / "search"))):
        selection = select(pulled)
        parts = markdown_parts(selection)
        texts = parts["Tables" if folder == "grid" else "Leaderboard"]
        shown = render(selection, "markdown", all_points=True)
        assert lines("\n".join(texts)) == lines(shown)
        assert "2/3, 1 diverged" in shown or folder == "search", "n stands beside what is not whole"
        for text in texts:
            _, notes = text.rsplit("|\n\n", 1)
            assert all(line.lstrip().startswith("- ") for line in notes.splitlines())


def test_published_numbers_are_compared(tmp_path: Path) -> None:
    from polysweep.analysis.published.comparison import compare
    from polysweep.analysis.published.formats import render_compared

    selection = select(sweep(tmp_path, as_published, **CIFAR))
    compared = compare(selection.pulled, load_published("cifar"))
    parts = markdown_parts(selection, compared, "nothing")
    assert parts["Published numbers beside ours"] == [render_compared(compared, "markdown")]
    assert parts["Summary"][0].endswith("- nothing")


@pytest.mark.usefixtures("one_plot")
def test_plots_are_never_counted_as_trials(store: Store, wandb_server: Wandb, tmp_path: Path) -> None:
    before = pull(ADDRESS, cache=tmp_path / "before", metric="test/top1", tuned="lr")
    publish_report(select(pull("made", store=store)))
    after = pull(ADDRESS, cache=tmp_path / "after", metric="test/top1", tuned="lr")
    again = pull(ADDRESS, cache=tmp_path / "before", metric="test/top1", tuned="lr")
    assert len(wandb_server.dump()["runs"]) == len(before.runs) + 1
    for pulled in (after, again, pull(f"{ADDRESS}/made", store=store, cache=tmp_path / "tagged")):
        assert set(pulled.runs["trial_id"]) == set(before.runs["trial_id"])
    wandb_server.load("q", [a_run(summary_id("q"), [])])
    with pytest.raises(Exception, match=r"no run matches; lab/q has 0 runs"):
        pull("wandb://lab/q", cache=tmp_path / "q")


@pytest.mark.usefixtures("one_plot")
def test_the_runs_of_an_address_have_a_report(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    selection = select(pull(ADDRESS, cache=tmp_path, **MAPPED))  # type: ignore[arg-type]
    report: Any = wr.Report.from_url(publish_report(selection)[0])
    assert report.title == "polysweep: p" and f"report {ADDRESS} --wandb" in report.description
    assert "| rho" in markdown(report) and "(n = 2)" in markdown(report)
    grid = next(block for block in report.blocks if isinstance(block, wr.PanelGrid) and not block.hide_run_sets)
    assert set(grid.runsets[0].groupby) == {
        "config.optimizer.value.radius",
        "config.optimizer.value.name",
        "config.lr.value",
    }


@pytest.mark.long  # W&B's client asks five times before it believes that a run was deleted
@pytest.mark.usefixtures("one_plot")
def test_what_a_user_removed_is_made_anew(store: Store, wandb_server: Wandb) -> None:
    selection, run_id = select(pull("made", store=store)), summary_id("made")
    address, _ = publish_report(selection)
    wandb.Api(timeout=30).run(f"lab/p/{run_id}").delete()
    end_client(0.5)  # as the next command has a client of its own
    assert publish_report(selection) == (address, False), "the same report, with the plots of another run"
    plots: Any = next(b for b in wr.Report.from_url(address).blocks if isinstance(b, wr.PanelGrid))
    assert f"{run_id}-2" in plots.runsets[0].filters
    wr.Report.from_url(address).delete()
    end_client(0.5)
    other, is_new = publish_report(selection)
    assert is_new and other != address


@pytest.mark.usefixtures("one_plot")
def test_a_report_keeps_its_id_if_it_is_renamed_or_copied(store: Store) -> None:
    selection = select(pull("made", store=store))
    address, _ = publish_report(selection)
    report: Any = wr.Report.from_url(address)
    report.title, report.description = "Ours", "of a user"
    report.save()
    report.save(clone=True)
    assert publish_report(selection) == (address, False)
    assert wr.Report.from_url(address).title == "polysweep: made"


@pytest.mark.usefixtures("one_plot")
def test_the_command_writes_the_page_and_publishes(store: Store, run_here: Run, tmp_path: Path) -> None:
    both = run_here("report", "made", "--store", store.root, "--out", "r.html", "--wandb")
    assert both.returncode == 0, both.stderr
    page, published = both.stdout.splitlines()
    assert page == "r.html" and published.startswith("created http") and (tmp_path / "r.html").exists()
    again = run_here("report", "made", "--store", store.root, "--wandb")
    assert again.returncode == 0 and again.stdout == published.replace("created", "updated") + "\n"
    neither = run_here("report", "made", "--store", store.root)
    assert neither.returncode == 2 and "--out FILE nor --wandb" in neither.stderr


@pytest.mark.usefixtures("one_plot")
@pytest.mark.parametrize(
    "fault", ["no key", pytest.param("no server", marks=pytest.mark.long), "no project", "read-only", "refused"]
)
def test_without_a_server_that_takes_it_the_page_is_written_all_the_same(
    fault: str, store: Store, wandb_server: Wandb, run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        "no key": "report --wandb: no W&B key; set WANDB_API_KEY, or run `wandb login`",
        "no server": "report --wandb: the W&B server cannot be used: ",
        "no project": "report --wandb: lab/nowhere: Project `lab/nowhere` not found",
        "read-only": "report --wandb: lab/p: the plots cannot be uploaded: ",
        "refused": "report --wandb: lab/p: the report cannot be saved: ",
    }[fault]
    if fault == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    elif fault == "no server":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    elif fault == "no project":
        monkeypatch.setenv("WANDB_PROJECT", "nowhere")
    elif fault == "read-only":
        wandb_server.protect("lab/p")
    else:
        wandb_server.fail(403, only="upsertView")
    done = run_here("report", "made", "--store", store.root, "--out", "r.html", "--wandb")
    assert done.returncode == 2 and (tmp_path / "r.html").exists()
    (line,) = done.stderr.splitlines()
    assert expected in line and len(line) < 300
    assert reports(wandb_server) == []


def test_a_sweep_of_which_nothing_is_there_is_an_error(
    wandb_server: Wandb, run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "p")
    wandb_server.load("p", [a_run("other", [{"acc": 1.0}])])
    sweep(tmp_path / "offline", by_lr)
    sweep(tmp_path / "new", lambda _: "new")
    for store, command, why in (
        ("offline", "report", "no run has the tag 'made'; polysweep sync made uploads"),
        ("offline", "dashboard", "no run has the tag 'made'; polysweep sync made uploads"),
        ("new", "report", "no trial has finished an epoch yet"),
    ):
        option = ["--wandb"] if command == "report" else []
        done = run_here(command, "made", "--store", tmp_path / store, *option)
        assert done.returncode == 2 and why in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(wandb_server.dump()["runs"]) == ["other"]
