"""Golden numbers: ids, histories and bits of fixed trials, and tables of a fixed sweep, as they always were.

`python -m tests.system.test_golden` writes them anew. When trained numbers change, raise `trainer.config.NUMERICS` so
that old and new trials never mix.
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import device_model
from polysweep.trainer.history import CALIBRATION_COLUMNS
from polysweep.trainer.train import Report
from tests.support.convex_trials import NOISY, histories, run
from tests.support.convex_trials import config as convex
from tests.support.made import by_lr, sweep
from tests.support.project import ROOT

GOLDEN: Final = Path(__file__).parent / "golden"
SPECS: Final = sorted(path.stem for path in (ROOT / "sweeps/specs").glob("*.yaml"))
FORMATS: Final = ("markdown", "latex", "csv", "html")

DIGITS: Final = {"task": "digits", "model": "mlp", "epochs": 5, "batch_size": 144}  # 50 steps
STEPS: Final = {"epochs": 50, "batch_size": 10, "task_options": NOISY}  # of a convex task, each a row
FULL: Final = {"epochs": 50, "batch_size": 100}  # the whole gradient
USAM: Final = {"optimizer": "usam", "rho": 0.1}
SAM: Final = {"optimizer": "sam", "rho": 0.05}
SGD: Final = {"optimizer": "sgd"}
CONSTANT: Final = {"scheduler": "constant", "lr": 0.05}
COSINE: Final = {"scheduler": "cosine", "lr": 0.1, "lr_min": 0.01}
POLYAK: Final = {"scheduler": "polyak", "gamma_b": 1.0}
STOCHASTIC: Final = {"scheduler_options": {"setting": "stochastic"}}

TRIALS: Final[dict[str, dict[str, Any]]] = {
    **{
        f"digits {optimizer['optimizer']} {scheduler['scheduler']}": {**DIGITS, **optimizer, **scheduler}
        for optimizer in (SGD, USAM, SAM)
        for scheduler in (CONSTANT, COSINE, POLYAK)
    },
    "digits momentum": {**DIGITS, **USAM, **CONSTANT, "momentum": 0.9, "weight_decay": 5e-4},
    "digits decay": {**DIGITS, **SAM, **POLYAK, "weight_decay": 5e-4, "label_smoothing": 0.1},
    "digits inverse": {**DIGITS, **SAM, **CONSTANT, "rho_schedule": "inverse"},
    "digits resnet8": {**DIGITS, **USAM, **POLYAK, "model": "resnet8", "epochs": 1, "val_fraction": 0.1},
    "digits adasam": {**DIGITS, **CONSTANT, "optimizer": "adasam", "rho": 0.001, "lr": 0.01},
    **{
        f"ridge {optimizer['optimizer']} {scheduler['scheduler']}": {**STEPS, **optimizer, **scheduler}
        for optimizer in (SGD, USAM, SAM)
        for scheduler in (CONSTANT, COSINE, POLYAK)
    },
    "ridge inverse_sqrt": {**STEPS, **USAM, **POLYAK, "rho_schedule": "inverse_sqrt"},
    "ridge polyak-deterministic": {**FULL, **USAM, "scheduler": "polyak-deterministic"},
    "ridge khanh2024": {**FULL, "scheduler": "khanh2024"},
    "ridge andriushchenko2022": {**FULL, "scheduler": "andriushchenko2022"},
    "ridge andriushchenko2022 stochastic": {**STEPS, "scheduler": "andriushchenko2022", **STOCHASTIC},
    "ridge oikonomou2025": {**FULL, "scheduler": "oikonomou2025"},
    "ridge oikonomou2025 stochastic": {**STEPS, "scheduler": "oikonomou2025", **STOCHASTIC},
    "ridge adasam": {**STEPS, **CONSTANT, "optimizer": "adasam", "rho": 0.01},
    "ridge lightsam-i": {**STEPS, **CONSTANT, "optimizer": "lightsam-i", "rho": 0.1, "lr": 5.0},
    "ridge lightsam-ii": {**STEPS, **CONSTANT, "optimizer": "lightsam-ii", "rho": 0.1, "lr": 0.5},
    "ridge lightsam-iii": {**STEPS, **CONSTANT, "optimizer": "lightsam-iii", "rho": 0.01},
    "ridge sa-sam": {**STEPS, **CONSTANT, "optimizer": "sa-sam"},
    "digits sgdw": {**DIGITS, **CONSTANT, "optimizer": "sgdw", "momentum": 0.9, "weight_decay": 5e-4},
    "digits adam": {**DIGITS, **COSINE, "optimizer": "adam", "lr": 0.01, "lr_min": 0.001, "weight_decay": 5e-4},
    "digits adamw": {**DIGITS, **CONSTANT, "optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "digits sam on adamw": {**DIGITS, **SAM, **CONSTANT, "base": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "ridge usam on adam": {**STEPS, **USAM, **CONSTANT, "base": "adam", "weight_decay": 0.1},
    "digits step": {**DIGITS, **SGD, "scheduler": "step", "lr": 0.1, "scheduler_options": {"step_size": 2}},
    "digits multistep": {
        **DIGITS,
        **SGD,
        "scheduler": "multistep",
        "lr": 0.1,
        "scheduler_options": {"milestones": [1, 4]},
    },
    "digits warmup-cosine": {
        **DIGITS,
        **USAM,
        **COSINE,
        "scheduler": "warmup-cosine",
        "scheduler_options": {"warmup_epochs": 1.5},
    },
    "digits one-cycle": {**DIGITS, **SAM, "scheduler": "one-cycle", "lr": 0.2},
    "ridge checked": {**FULL, **USAM, **POLYAK, "task_options": {"check": True}},
    "logistic usam polyak": {**USAM, **POLYAK, "task": "logistic", "epochs": 50, "batch_size": 20},
    "logistic sgd constant": {**SGD, **CONSTANT, "task": "logistic", "epochs": 50, "batch_size": 200},
}
"""Every optimizer, and every scheduler, for 50 steps."""


def golden(name: str) -> Any:
    """What is kept in `golden/NAME.json`."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def trial(name: str, seed: int = 0) -> TrialConfig:
    return convex(**{**TRIALS[name], "seed": seed})


def spec_ids(name: str) -> str:
    """One hash over the ids of all trials of a shipped spec, in order."""
    spec = SweepSpec.load(ROOT / f"sweeps/specs/{name}.yaml")
    ids = [one.trial_id for one in spec.trials]
    return f"{len(ids)} {hashlib.sha256(' '.join(ids).encode()).hexdigest()}"


def ids() -> dict[str, str]:
    """By trial its id, and by spec the hash of its ids."""
    return {**{name: trial(name).trial_id for name in TRIALS}, **{name: spec_ids(name) for name in SPECS}}


def trained(name: str) -> dict[str, Any]:
    """The last history row of two seeds trained as one stack, and a hash of every bit of histories and rows.

    Not of columns that came later: the hash says that nothing else has changed since.
    """
    reports = run([trial(name, seed) for seed in range(2)])
    bits = hashlib.sha256()
    for row in reports:
        for value in _numbers(histories(row)):
            bits.update(value)
        for value in _numbers(row[-1].checkpoint()):
            bits.update(value)
    return {"rows": [_last(row) for row in reports], "bits": bits.hexdigest()}


def _last(reports: list[Report]) -> dict[str, Any]:
    return histories(reports)[-1]


def _numbers(value: Any) -> Iterator[bytes]:
    """The bytes of all numbers and tensors of a history or a checkpoint; names and timings are no numbers."""
    if isinstance(value, torch.Tensor):
        yield value.contiguous().numpy().tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value):
            if key not in ("history", "format", *CALIBRATION_COLUMNS):
                yield from _numbers(value[key])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, int | float):
        yield struct.pack("<d", value)


def tables(folder: Path) -> dict[str, str]:
    """A made sweep's table in every format."""
    chosen = select(sweep(folder, by_lr))
    return {format_: render(chosen, format_) for format_ in FORMATS}


def test_ids_stay() -> None:
    assert ids() == golden("ids")


@pytest.mark.parametrize("name", TRIALS)
def test_numbers_stay(name: str) -> None:
    """To the bit on the kind of CPU that they were written on; another one may add up in another order."""
    kept = golden("trained")
    found = trained(name)
    if device_model("cpu") == kept["cpu"] and torch.__version__ == kept["torch"]:
        assert found == kept["trials"][name]
    for row, expected in zip(found["rows"], kept["trials"][name]["rows"], strict=True):
        assert row.keys() == expected.keys()
        for key, value in expected.items():
            assert row[key] == (pytest.approx(value, rel=1e-4, abs=1e-9) if isinstance(value, float) else value), key


def test_tables_stay(tmp_path: Path) -> None:
    assert tables(tmp_path) == golden("tables")


def write() -> None:
    """Write all golden numbers anew."""
    torch.set_num_threads(1)
    GOLDEN.mkdir(exist_ok=True)
    numbers = {
        "cpu": device_model("cpu"), "torch": torch.__version__, "trials": {name: trained(name) for name in TRIALS},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made = tables(Path(folder))
    for name, content in (("ids", ids()), ("trained", numbers), ("tables", made)):
        (GOLDEN / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write()
