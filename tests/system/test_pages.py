"""LaTeX by a real engine, the report in a real browser: minutes, with what Debian packages bring."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.published.cells import load_published
from polysweep.analysis.report.html import write_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from tests.support.made import CAPS, SPEC, by_lr, capped, sweep
from tests.support.processes import own_network
from tests.support.published import CIFAR, as_published

pytestmark = pytest.mark.long


def tool(*names: str) -> str:
    """The first of the programs that is there."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise AssertionError(
        f"the long tests need {' or '.join(names)}: apt-get install chromium texlive-latex-recommended"
    )


@pytest.mark.parametrize("kind", ["plain", "caps", "hostile"])
def test_latex_compiles(tmp_path: Path, kind: str) -> None:
    if kind == "hostile":
        parameters = {**SPEC["parameters"], "model_options": {"values": [{"hidden": 8}, {"hidden": 16}]}}
        pulled = sweep(tmp_path / "s", capped, parameters=parameters, name="a_b-50.x")
    else:
        pulled = sweep(tmp_path / "s", capped, **(CAPS if kind == "caps" else {}))
    text = render(select(pulled), "latex")
    page = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{text}\n\\end{{document}}\n"
    (tmp_path / "table.tex").write_text(page)
    done = subprocess.run(
        [tool("pdflatex", "lualatex", "xelatex"), "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").read_bytes().startswith(b"%PDF")
    assert "Undefined control sequence" not in done.stdout and "Missing $" not in done.stdout


def browse(page: Path, *options: str, script: str = "") -> tuple[str, dict[str, Any]]:
    """Open a page without a network; what it says on its console and as its DOM, and what it asked the network for."""
    log = page.with_suffix(".netlog")
    target = page.as_uri()
    if script:
        driven = page.with_name("driven.html")
        text = page.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")
        driven.write_text(text, encoding="utf-8")
        target = driven.as_uri()
    chromium = [
        tool("chromium", "chromium-browser", "google-chrome"),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={page.parent / 'profile'}",
        "--enable-logging=stderr",
        f"--log-net-log={log}",
    ]
    done = subprocess.run(
        [*chromium, *options, target],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=own_network,
        env={**os.environ, "HOME": str(page.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "source: chrome://" not in line]
    assert console == [], console
    text = log.read_text().rstrip()
    return done.stdout, json.loads(text if text.endswith("}") else text.rstrip(",") + "]}")


def is_housekeeping(url: str) -> bool:
    """What the browser asks its maker for by itself, whatever page is open."""
    hosts = r"(accounts|clients2|update|optimizationguide-pa)\.google(apis)?\.com/|www\.google\.com/async/"
    return re.match(rf"https?://({hosts})", url) is not None


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_opens_without_a_network_and_says_nothing_on_the_console(tmp_path: Path, width: int) -> None:
    page = tmp_path / "report.html"
    write_report(select(sweep(tmp_path / "s", as_published, **CIFAR)), page, load_published("cifar"))
    shot = tmp_path / f"report-{width}.png"
    _, log = browse(page, f"--window-size={width},2400", f"--screenshot={shot}")
    asked = {event["params"]["url"] for event in log["events"] if "url" in event.get("params", {})}
    assert [url for url in asked if url.startswith(("http", "ws", "ftp")) and not is_housekeeping(url)] == []
    data = shot.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, 2400) and len(data) > 50_000, "something is on it"


def test_tables_sort_by_number_and_the_page_fits_a_phone(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(select(sweep(tmp_path / "s", by_lr)), page)
    script = """
      const table = document.querySelector("#tables ~ .wide table"), button = table.querySelectorAll("thead button")[2];
      button.focus(); const focused = document.activeElement === button; button.click();
      const up = [...table.tBodies[0].rows].map((row) => row.cells[2].textContent); button.click();
      const down = [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
      const sorted = table.querySelector("[aria-sort]").getAttribute("aria-sort");
      const wide = document.documentElement.scrollWidth > window.innerWidth;
      const downloads = [...document.querySelectorAll("a[download]")].length;
      document.body.dataset.result = JSON.stringify({focused, up, down, sorted, wide, downloads});
    """
    dom, _ = browse(page, "--window-size=500,900", "--dump-dom", script=script)
    found = json.loads(re.search(r'data-result="([^"]*)"', dom)[1].replace("&quot;", '"'))  # type: ignore[index]
    assert found["up"] == ["92.00 ± 1.00", "95.00 ± 1.00"] and found["down"] == found["up"][::-1]
    assert found["focused"] and found["sorted"] == "descending" and not found["wide"]
    assert found["downloads"] == 1 + 6, "the numbers, and the data of each figure"
