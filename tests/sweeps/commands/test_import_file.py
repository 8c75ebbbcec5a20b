"""`polysweep import`: a file becomes a spec that plans; nothing is replaced without being told."""

from __future__ import annotations

from pathlib import Path

from tests.support.foreign import FOREIGN, KINDS

FILE = f"parameters:\n{KINDS.replace('  task: {value: digits}', '')}{FOREIGN['synonyms']}"


def test_a_file_is_printed_or_written_and_then_plans(tmp_path: Path, run_here) -> None:
    (tmp_path / "theirs.yaml").write_text(FILE)
    printed = run_here("import", "theirs.yaml")
    assert printed.returncode == 0 and "warning: left to do: task: missing" in printed.stderr
    assert "# To do: task: missing" in printed.stdout and not list(tmp_path.glob("*.yml"))
    written = run_here("import", "theirs.yaml", "-o", "ours.yml", "--set", "task=digits")
    assert (written.stdout, written.stderr) == ("ours.yml: written\n", "")
    again = run_here("import", "theirs.yaml", "-o", "ours.yml")
    assert (again.returncode, again.stderr) == (2, "error: ours.yml: exists; --force replaces it\n")
    assert run_here("import", "theirs.yaml", "-o", "ours.yml", "--set", "task=digits", "--force").returncode == 0
    planned = run_here("plan", "ours.yml")
    assert planned.returncode == 0 and "2 trials" in planned.stdout, planned.stderr


def test_what_cannot_be_is_one_line(tmp_path: Path, run_here) -> None:
    (tmp_path / "theirs.yaml").write_text(FILE)
    for arguments, words in (
        (("theirs.yaml", "-o", "no/such/folder.yaml"), "no/such/folder.yaml: cannot be written"),
        (("theirs.yaml", "--set", "tusk=digits"), "--set tusk: unknown parameter; did you mean 'task'?"),
        (("nothing.yaml",), "nothing.yaml: no such file"),
    ):
        result = run_here("import", *arguments)
        assert result.returncode == 2 and result.stderr.startswith(f"error: {words}"), result.stderr


def test_count_ends_a_search_and_is_kept_with_it(tmp_path: Path, run_here, launch_here) -> None:
    text = FILE.replace("{values: [0.1, 0.2]}", "{min: 0.1, max: 0.2}").replace(
        "n_epochs: {value: 2}", "epochs: {value: 1}"
    )
    text = text.replace("bs:", "batch_size:").replace("wd:", "weight_decay:").replace("learning_rate", "lr")
    (tmp_path / "drawn.yaml").write_text(f"method: random\n{text}  task: {{value: digits}}\n")
    without = run_here("plan", "drawn.yaml")
    assert without.stderr.count("\n") == 1 and "requires run_cap" in without.stderr and "--count N" in without.stderr
    assert "2 trials" in run_here("plan", "drawn.yaml", "--count", "2").stdout
    launched = launch_here("drawn.yaml", "--count", "2")
    assert "2 finished" in launched.stdout, launched.stderr
    assert "nothing to start" in launch_here("drawn.yaml", "--count", "2").stdout
    assert "run_cap: 2\n" in (tmp_path / "polysweep-store/sweeps/drawn/spec.yaml").read_text()


def test_two_names_with_one_slug_are_not_one_sweep(tmp_path: Path, run_here, launch_here) -> None:
    rename = "rename: {learning_rate: lr, bs: batch_size, n_epochs: epochs, wd: weight_decay}\n"
    text = f"{FILE}  task: {{value: digits}}\n{rename}".replace("{values: [0.1, 0.2]}", "{value: 0.1}")
    text = text.replace("n_epochs: {value: 2}", "n_epochs: {value: 1}")
    (tmp_path / "a.yaml").write_text(f"name: My sweep\n{text}")
    (tmp_path / "b.yaml").write_text(f"name: My/sweep\n{text}")
    launched = launch_here("a.yaml")
    assert launched.returncode == 0 and "is called My-sweep in the Store" in launched.stderr
    clash = launch_here("b.yaml")
    assert clash.returncode == 2 and "name as written: My sweep -> My/sweep" in clash.stderr
    assert launch_here("a.yaml").returncode == 0
