"""How sweep files of W&B users plan, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.foreign import FOREIGN, KINDS
from tools import foreign_files


def test_files_are_counted_by_how_they_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "ours": f"parameters:\n{KINDS}  lr: {{value: 0.1}}\n",
        "renamed": f"parameters:\n{KINDS}{FOREIGN['synonyms']}",
        "imported": "method: random\nparameters:\n  learning_rate: {min: 0.1, max: 0.2}\n  n_heads: {value: 1}\n",
        "wrong": "method: grid\nparameters: 3\n",
        "not YAML": "a: ]",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    foreign_files.main(str(tmp_path))
    counts = dict(reversed(line.strip().split(" ", 1)) for line in capsys.readouterr().out.splitlines()[:5])
    assert counts == {
        "files": "5",
        "plan unchanged": "1",
        "names are all read with the block": "3",
        "plan with the block and what is missing": "2",
        "plan after import, with what is missing": "3",
    }
