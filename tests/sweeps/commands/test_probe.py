"""`polysweep probe`: what it measures, what it leaves alone, and what it refuses before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.curvature import curvature_means, curvature_table
from polysweep.sweeps.commands import probe as probe_command
from polysweep.sweeps.store.checkpoints import read_checkpoint
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from polysweep.trainer.models import mlp
from polysweep.trainer.tasks.loading import load_task
from tests.support.commands import assert_user_error
from tests.support.probing import Run, spec_file
from tests.support.probing import probe_here as probe_here
from tests.support.probing import without_ray as without_ray


@pytest.mark.usefixtures("without_ray")
def test_a_launch_measures_at_its_end_what_its_spec_asks_for_and_again_measures_nothing(
    launch_here: Run, tmp_path: Path
) -> None:
    store, spec = (
        tmp_path / "store",
        spec_file(tmp_path, launch={"stack": 3, "probe": ["noise-3", "blur", "curvature"]}),
    )
    first = launch_here(spec, "--store", store)
    assert first.returncode == 0 and "12 of 12 measurements made" in first.stdout, first.stdout + first.stderr
    pulled = pull("small", store=str(store), cache=tmp_path / "cache")
    names = ["test/noise-3", *(f"test/blur-{n}" for n in range(1, 6)), "curvature/trace"]
    assert pulled.runs[[f"last/{name}" for name in names]].notna().all(axis=None)
    again = launch_here(spec, "--store", store)
    assert "nothing to start" in again.stdout and "nothing to measure" in again.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"launch": {"probe": ["noise-9"]}}, ("small.yaml:1", "launch.probe", "'noise-9'", "occlusion", "1 to 5")),
        ({"launch": {"probe": ["blur"], "keep": "none"}}, ("small.yaml:1", "launch", "probe", "keep: none")),
        (
            {
                "launch": {"probe": ["curvature"]}, "metric": {"name": "distance", "goal": "minimize"}, "tuned": [],
                "parameters": {name: {"value": value} for name, value in
                               {"task": "ridge", "model": "linear", "optimizer": "sgd", "batch_size": 100}.items()},
                "variants": [{"scheduler": {"value": "constant"}, "lr": {"value": 0.01}}],
            },
            ("task: 'ridge' has no model to measure",),
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_at_the_end_is_one_line_before_the_launch(
    changes: dict[str, Any], words: tuple[str, ...], run_here: Run, tmp_path: Path
) -> None:
    answer = run_here("launch", spec_file(tmp_path, **changes), "--store", tmp_path / "store")
    assert_user_error(answer, *words)
    assert answer.stderr.count("\n") == 1 and not list((tmp_path / "store").glob("sweeps/*"))


def test_every_ended_trial_is_measured_once_and_what_is_lost_is_measured_again(
    launch_here: Run, probe_here: Run, run_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    asked = ("small", "--store", store, "--images", "200", "--precision", "float64", "--steps", "400", "--vectors", "4")
    first = probe_here(*asked)
    assert first.returncode == 0 and "6 measurements to make, 0 are there" in first.stdout, first.stdout + first.stderr
    assert "nothing to measure, all 6 ended trials" in probe_here(*asked).stdout
    files = sorted(store.glob("trials/*/probes/curvature-*.json"))
    assert len(files) == 6
    content = json.loads(files[0].read_text())
    files[0].unlink()
    assert "1 measurements to make, 5 are there" in probe_here(*asked).stdout
    again = json.loads(files[0].read_text())["columns"]
    assert again == pytest.approx(content["columns"], rel=1e-8), "alone as beside two others, to rounding"

    selection = select(pull("small", store=str(store), cache=tmp_path / "cache"), metric="curvature/eigenvalue-1")
    assert selection.epoch == "last" and selection.by == "test/top1" and selection.is_maximal is False
    assert [int(n) for n in selection.cells["n"]] == [2, 2]
    trial = json.loads(files[0].parents[1].joinpath("record.json").read_text())["trial_id"]
    runs = selection.pulled.runs.set_index("trial_id")
    assert runs.loc[trial, "last/curvature/eigenvalue-1"] == again["curvature/eigenvalue-1"]
    assert again["curvature/eigenvalue-1"] == pytest.approx(_exact(Store(str(store)), trial, 200), rel=1e-6)

    table = curvature_table(selection)
    means = curvature_means(selection)
    assert table is not None and len(table.rows) == 2 and set(means["n"]) == {2}
    shown = run_here("table", "small", "--store", store, "--metric", "curvature/trace")
    assert shown.returncode == 0 and "at the last epoch" in shown.stdout, shown.stdout + shown.stderr
    refused = run_here("table", "small", "--store", store, "--metric", "curvature/trace", "--epoch", "best")
    assert_user_error(refused, "'curvature/trace' was measured at the last epoch")
    chosen = run_here("table", "small", "--store", store, "--select-by", "curvature/trace")
    assert chosen.returncode == 0 and "at the last epoch" in chosen.stdout, chosen.stderr

    first_settings, damaged = store / "sweeps/small/probes/curvature.json", sorted(store.glob("trials/*/probes/*"))[0]
    damaged.write_text("{")
    table = run_here("table", "small", "--store", store, "--metric", "curvature/trace")
    assert table.returncode == 0 and "1/2" in table.stdout and f"{damaged}: damaged" in table.stderr
    assert "1 measurements to make" in probe_here(*asked).stdout and json.loads(damaged.read_text())["epoch"] == 2
    first_settings.write_text('{"format": 1, "settings": {"image": 3}}')
    table = run_here("table", "small", "--store", store)
    assert table.returncode == 0 and "damaged: settings.image: " in table.stderr, table.stderr
    assert "nothing to measure" in probe_here(*asked).stdout
    assert run_here("table", "small", "--store", store).stderr.count("damaged") == 0


def _exact(store: Store, trial_id: str, images: int) -> float:
    """The largest eigenvalue of the exact Hessian of a trained mlp on the images of a probe."""
    from polysweep.trainer.streams import stream

    record = store.record(trial_id)
    assert record is not None
    checkpoint, _ = read_checkpoint(store, record)
    config = TrialConfig.parse(store.config(trial_id) or {})
    task = load_task(config)
    module = mlp(task.input_shape, task.classes, hidden=4, layers=1).double()
    shapes = [parameter.shape for parameter in module.parameters()]
    names = [name for name, _ in module.named_parameters()]
    order = torch.randperm(task.size, generator=stream(0, "probe"))[:images]
    inputs, labels = task.mini_batch(order.unsqueeze(0), None, None)

    def f(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        outputs = torch.func.functional_call(module, weights, (inputs[0].double(),))
        return torch.nn.functional.cross_entropy(outputs, labels[0])

    assert checkpoint is not None
    hessian = torch.autograd.functional.hessian(f, checkpoint["row"]["theta"].double())
    return float(torch.linalg.eigvalsh(hessian)[-1])


def test_corruptions_are_metrics_of_the_last_epoch(launch_here: Run, probe_here: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    answer = probe_here("small", "--store", store, "--corruptions", "noise,contrast-2")
    assert answer.returncode == 0 and "6 of 6 measurements made" in answer.stdout, answer.stdout + answer.stderr
    pulled = pull("small", store=str(store), cache=tmp_path / "cache")
    names = ["test/noise-1", "test/noise-2", "test/noise-3", "test/noise-4", "test/noise-5", "test/contrast-2"]
    assert list(pulled.protocol.probed) == names
    values = pulled.runs[[f"last/{name}" for name in names]].to_numpy(dtype=float)
    assert values.shape == (6, 6) and ((values > 0) & (values < 1)).all()
    assert select(pulled, metric="test/noise-5").epoch == "last"
    more = probe_here("small", "--store", store, "--corruptions", "blur-1,noise-2")
    assert "6 measurements to make, 0 are there" in more.stdout, "blur-1 is new"
    assert "nothing to measure" in probe_here("small", "--store", store, "--corruptions", "noise-2").stdout
    names = list(pull("small", store=str(store), cache=tmp_path / "cache").protocol.probed)
    assert names[-2:] == ["test/blur-1", "test/contrast-2"] and len(names) == 7, "what was there before stays"


def test_a_kept_best_checkpoint_is_measured_at_the_best_epoch(
    launch_here: Run, probe_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    spec = spec_file(tmp_path, launch={"keep": "best"}, metric={"name": "train/loss", "goal": "maximize"})  # the first
    assert launch_here(spec, "--store", store).returncode == 0
    assert probe_here("small", "--store", store, "--images", "50").returncode == 0
    pulled = pull("small", store=str(store), cache=tmp_path / "cache")
    assert set(pulled.protocol.probed.values()) == {"best"} and set(pulled.runs["best_epoch"]) == {1}
    assert pulled.runs["best/curvature/trace"].notna().all() and pulled.runs["last/curvature/trace"].isna().all()
    assert select(pulled, metric="curvature/trace").epoch == "best"


def test_without_checkpoints_nothing_can_be_measured(launch_here: Run, run_here: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path, launch={"keep": "none"}), "--store", store).returncode == 0
    refused = run_here("probe", "small", "--store", store)
    assert_user_error(
        refused, "6 of the trials, such as", "have no checkpoint", "launch.keep: none", "launch.keep: last"
    )


def test_a_damaged_checkpoint_is_named_and_its_neighbours_are_measured(
    launch_here: Run, probe_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    path = sorted(store.glob("trials/*/checkpoint.pt"))[0]
    path.write_bytes(path.read_bytes()[:-9])
    answer = probe_here("small", "--store", store, "--images", "50", "--vectors", "2")
    assert answer.returncode == 1 and "5 of 6 measurements made" in answer.stdout
    assert f"warning: trial {path.parent.name} is not measured: " in answer.stderr and "damaged" in answer.stderr


def test_one_lost_checkpoint_does_not_stand_in_the_way_of_the_others(
    launch_here: Run, probe_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    next(store.glob("trials/*/checkpoint.pt")).unlink()
    for words in ("5 measurements to make, 0 are there", "nothing to measure, 5 of 6 ended trials are measured"):
        answer = probe_here("small", "--store", store, "--images", "50", "--vectors", "2")
        assert answer.returncode == 0 and words in answer.stdout, answer.stdout
        assert "warning: small: 1 of the trials, such as" in answer.stderr


def test_a_gpu_that_is_not_there_is_one_line_and_the_cpu_can_be_asked_for(
    launch_here: Run, probe_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    monkeypatch.setattr(probe_command, "missing_cuda", lambda: "no driver")
    answer = probe_here("small", "--store", store, "--device", "cuda")
    assert_user_error(answer, "torch can use no GPU here: no driver", "--device cpu")
    assert probe_here("small", "--store", store, "--images", "50", "--device", "cpu").returncode == 0


def test_a_convex_task_and_a_sweep_without_results_are_refused(run_here: Run, launch_here: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ridge = {"task": "ridge", "model": "linear", "optimizer": "sgd", "scheduler": "constant", "lr": 0.01, "epochs": 1}
    fields = {
        "parameters": {name: {"value": value} for name, value in {**ridge, "batch_size": 100}.items()},
        "variants": [{}],
        "tuned": [],
        "metric": {"name": "distance", "goal": "minimize"},
    }
    assert launch_here(spec_file(tmp_path, **fields), "--store", store).returncode == 0
    assert_user_error(run_here("probe", "small", "--store", store), "task: 'ridge' has no model to measure")
    assert_user_error(run_here("probe", "other", "--store", store), "'other'")
    with pytest.raises(UserError):
        Store(str(tmp_path / "nowhere")).launched("small")


def test_a_probe_that_does_not_come_to_its_end_leaves_what_tables_show(
    launch_here: Run, probe_here: Run, run_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert launch_here(spec_file(tmp_path), "--store", store).returncode == 0
    assert probe_here("small", "--store", store, "--images", "50", "--vectors", "2").returncode == 0
    refused = run_here("probe", "small", "--store", store, "--images", "60", "--address", "ray://127.0.0.1:1")
    assert refused.returncode == 2 and "--address" in refused.stderr
    table = run_here("table", "small", "--store", store, "--metric", "curvature/trace")
    assert table.returncode == 0 and "at the last epoch" in table.stdout, table.stderr
