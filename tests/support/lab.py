"""A user's own parts: the files of docs/extending.md, and parts that are wrong in every way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polysweep.trainer.components import plugins
from polysweep.trainer.config import TrialConfig
from tests.support.project import ROOT, TINY

DOCS = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")

STEPS = """
import torch
from torch import nn
from polysweep import Classification, Gamma, Images, Normalisation, Optimizer, Scheduler, declare

class Dropout(nn.Sequential):
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, classes))

class Noisy(nn.Sequential):
    # draws by torch's own generator, which vmap refuses
    def forward(self, x):
        return super().forward(nn.functional.dropout(x.flatten(1), 0.5, self.training))
    def __init__(self, input_shape, classes):
        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))

def nothing(input_shape, classes):
    return None

def too_few(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 1))

def wide(input_shape, classes, wrong):
    return nn.Flatten()

class Grouped(nn.Sequential):
    def __init__(self, input_shape, classes):
        super().__init__(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, classes))

class Flat(Scheduler):
    def init(self): return {"seen": torch.zeros(())}
    def gamma(self, context, state): return Gamma.of(context.loss), state

class Raising(Optimizer):
    def update(self, f, step_size, x, state, t): raise KeyError("nothing here")

def a_dict(data, val_fraction):
    return {}

def floats(data, val_fraction):
    images = Images(torch.zeros(4, 8, 8, 1), torch.zeros(4, dtype=torch.int64))
    return Classification(images, None, images, Normalisation(torch.zeros(1), torch.ones(1)), 10)

def beyond(data, val_fraction):
    images = Images(torch.zeros(4, 8, 8, 1, dtype=torch.uint8), torch.tensor([0, 1, 2, 10]))
    return Classification(images, None, images, Normalisation(torch.zeros(1), torch.ones(1)), 10)

def exits(data, val_fraction):
    raise SystemExit(0)

def keeps_all(data, val_fraction):
    images = Images(torch.zeros(8, 8, 8, 1, dtype=torch.uint8), torch.arange(8))
    return Classification(images, None, images, Normalisation(torch.zeros(1), torch.ones(1)), 10)

@declare(train_size=9)
def miscounted(data, val_fraction):
    return keeps_all(data, val_fraction)

class Leaves(Scheduler):
    def start_epoch(self, epoch):
        if epoch == 1: raise SystemExit(0)
    def gamma(self, context, state): return Gamma.of(0 * context.loss + 0.1), state
"""

READING = """
from pathlib import Path
import torch
from polysweep import Classification, Images, Normalisation

def table(data, val_fraction):
    rows = torch.tensor([[int(cell) for cell in line.split(",")] for line in Path("data/table.csv").open()])
    images = Images(rows[:, :4].to(torch.uint8).reshape(-1, 2, 2, 1), rows[:, 4])
    return Classification(images, None, images, Normalisation(torch.zeros(1), torch.ones(1)), 2)
"""
"""A module with a task that reads a file by a relative path."""

BROKEN = '''
import torch
from torch import nn
from polysweep import Scheduler, declare

class Halving:
    def init(self): return {}

class OldNames:
    def initial(self, theta): return {}
    def propose(self, oracle, step_size, theta, state, step): ...

class Unwritten(Scheduler):
    pass

@declare(uses={"learning_rate": 0.1})
def wrong_field(input_shape, classes): ...

number = 3

def garbage(input_shape, classes): ...
garbage.polysweep = {"bogus": 1}

class Looks(nn.Module):
    """Looks at a value, which vmap refuses."""
    def __init__(self, input_shape, classes):
        super().__init__()
        self.linear = nn.Linear(64, classes)
    def forward(self, x):
        if x.mean() > 1e9:
            raise AssertionError
        return self.linear(x.flatten(1))

class Hungry(nn.Module):
    """Runs out of memory in a stack of more than two."""
    def __init__(self, input_shape, classes):
        super().__init__()
        self.linear = nn.Linear(64, classes)
    def forward(self, x):
        return self.linear(x.flatten(1))

def hungry(input_shape, classes):
    return Hungry(input_shape, classes)
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory with the files of the documentation, importable."""
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab" / "__init__.py").write_text("")
    for name, code in re.findall(r"```python\n# (my_lab/\w+\.py)\n(.*?)```", DOCS, re.DOTALL):
        (tmp_path / name).write_text(code)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "steps.py").write_text(STEPS)
    misdeclared = "from polysweep import declare\n@declare(version='two')\ndef f(): ..."
    (tmp_path / "misdeclared.py").write_text(misdeclared)
    (tmp_path / "no_import.py").write_text("import nothing_of_that_name")
    (spec,) = re.findall(r"```yaml\n(name: mine.*?)```", DOCS, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(spec)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._own.cache_clear()
    yield tmp_path
    plugins._own.cache_clear()
    written = ("my_lab", "broken", "misdeclared", "no_import", "steps")
    for name in [name for name in sys.modules if name.split(".")[0] in written]:
        del sys.modules[name]


def own(**changes: object) -> TrialConfig:
    values = {**TINY, "task": "my_lab.stripes:stripes", "batch_size": 32, **changes}
    return TrialConfig.parse({key: value for key, value in values.items() if value is not None})
