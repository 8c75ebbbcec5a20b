"""A sweep as a Ray Job: what travels to the cluster, and what is refused before anything does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.cluster.submit import _requirements, _travelling, _what_travels, own_names, submit
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.errors import UserError
from tests.support.lab import lab as lab

SpecFile = Callable[..., Path]


def test_the_package_the_spec_and_own_parts_travel_and_nothing_stays(lab: Path) -> None:
    spec = SweepSpec.load(lab / "mine.yaml")
    assert {name.partition(":")[0].partition(".")[0] for name in own_names(spec)} == {"my_lab"}
    with _travelling(spec) as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["mine.yaml", "my_lab", "polysweep"]
        assert (folder / "mine.yaml").read_text() == spec.text
        assert (folder / "polysweep" / "sweeps" / "job.py").is_file(), "through the package's links"
        assert not list(folder.rglob("__pycache__"))
    assert not folder.exists()
    searched = spec.text.replace("name: mine", "name: mine\nmethod: bayes\nrun_cap: 4").replace(
        "values: [0.05, 0.5]", "min: 0.05, max: 0.5"
    )
    searched += "metric: {name: test/top1, goal: maximize}\n"
    assert own_names(SweepSpec.parse(searched, "mine.yaml")) == own_names(spec), "though no point is known yet"


def test_settings_and_packages_travel_and_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("WANDB_BASE_URL", "http://wandb")
    monkeypatch.setenv("POLYSWEEP_COMMIT", "c0ffee+")
    file = tmp_path / "needed.txt"
    file.write_text("# ours\n\nmy-lab==1.2  # of the paper\n  numpy>=2\n")
    assert _requirements(file) == ["my-lab==1.2", "numpy>=2"]
    settings = {"WANDB_BASE_URL": "http://wandb", "POLYSWEEP_COMMIT": "c0ffee+"}
    assert _what_travels(tmp_path, []) == {"working_dir": str(tmp_path), "env_vars": settings}
    assert _what_travels(tmp_path, ["numpy>=2"])["pip"] == {"packages": ["numpy>=2"], "pip_check": False}


def test_a_store_that_the_cluster_cannot_mean_is_refused(spec_file: SpecFile) -> None:
    with pytest.raises(UserError) as caught:
        submit(SweepSpec.load(spec_file()), "http://127.0.0.1:9", "./store")
    assert str(caught.value) == (
        "--store './store': the job runs on the cluster; expected an absolute path that all nodes share, or s3://"
    )
