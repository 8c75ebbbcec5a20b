"""The user's own parts: the examples of docs/extending.md, versions, and every way to get one wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, TINY, records
from test_train import by_row

from sweeps.plan import plan
from sweeps.record import Job
from sweeps.spec import SweepSpec
from sweeps.store import Store
from sweeps.worker import StackRun
from trainer import plugins
from trainer.config import TrialConfig
from trainer.probe import refusal, rehearse
from trainer.registry import ConfigError
from trainer.schedulers import Seen, StepSizes
from trainer.train import train

DOCS = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
Run = Callable[..., "subprocess.CompletedProcess[str]"]

BROKEN = '''
import torch
from torch import nn
from trainer.registry import declare
from trainer.schedulers import Scheduler

class Halving:
    def initial(self): return {}

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
    misdeclared = "from trainer.registry import declare\n@declare(version='two')\ndef f(): ..."
    (tmp_path / "misdeclared.py").write_text(misdeclared)
    (tmp_path / "no_import.py").write_text("import nothing_of_that_name")
    (spec,) = re.findall(r"```yaml\n(name: mine.*?)```", DOCS, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(spec)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._own.cache_clear()
    yield tmp_path
    plugins._own.cache_clear()
    for name in [
        name for name in sys.modules if name.split(".")[0] in ("my_lab", "broken", "misdeclared", "no_import", "steps")
    ]:
        del sys.modules[name]


def own(**changes: object) -> TrialConfig:
    values = {**TINY, "task": "my_lab.stripes:stripes", "batch_size": 32, **changes}
    return TrialConfig.parse({key: value for key, value in values.items() if value is not None})


@pytest.mark.parametrize("stack", [None, 2])
def test_the_documented_parts_are_swept_without_touching_the_package(lab: Path, run: Run, stack: int | None) -> None:
    if stack:
        with (lab / "mine.yaml").open("a") as spec:
            spec.write(f"launch: {{stack: {stack}}}\n")
    answer = run("launch", "mine.yaml", "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "mine: 8 finished" in answer.stdout
    assert {record["width"] for record in records(lab / "store").values()} == {stack or 1}
    table = run("table", "mine", "--store", "store").stdout
    assert "my_lab.rules:DecSPS" in table.splitlines()[2]
    assert "nothing to start" in run("launch", "mine.yaml", "--store", "store", "--wandb", "disabled").stdout


def test_the_documented_scheduler_agrees_with_its_formula(lab: Path) -> None:
    config = own(scheduler="my_lab.rules:DecSPS", scheduler_options={"c0": 2.0}, gamma_b=0.8, rho=0.1)
    rule = StepSizes([config], torch.device("cpu"), torch.float64)
    state, random = rule.initial(), np.random.default_rng(0)
    reach = 2.0 * 0.8
    for t in range(20):
        loss, grad, ascent = random.normal(), random.normal(size=3), random.normal(size=3)
        seen = Seen(*(torch.tensor(np.array([v])) for v in (loss, grad, ascent)), torch.tensor(t))
        gamma, state = rule.gamma(seen, state)
        c = 2.0 * (t + 1) ** 0.5
        expected = min(max(loss - grad @ ascent, 0) / (grad @ grad), reach) / c
        reach = c * expected
        assert gamma.value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("width", [1, 3])
def test_what_a_rule_remembers_is_in_the_checkpoint(lab: Path, width: int) -> None:
    """Continued bitwise: DecSPS remembers a step size, ASAM here a velocity."""
    rows = [
        own(scheduler="my_lab.rules:DecSPS", optimizer="my_lab.asam:ASAM", momentum=0.5, seed=n, model="resnet8")
        for n in range(width)
    ]
    whole = list(train(rows))
    first = next(train(rows))
    saved = [report.checkpoint() for report in first]
    assert "my_lab.rules:DecSPS/reach" in saved[0]["row"]
    rest = list(train(rows, checkpoints=saved))
    for row in range(width):
        a, b = whole[-1][row].checkpoint()["row"], rest[-1][row].checkpoint()["row"]
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_mixed_stack_selects_by_row(lab: Path) -> None:
    """DecSPS beside Polyak and a constant step size: a row is bitwise the same with other neighbours."""
    mine = own(scheduler="my_lab.rules:DecSPS")
    polyak, constant = own(), own(scheduler="constant", lr=0.1)
    together = list(train([mine, polyak, constant]))
    reordered = list(train([constant, constant, mine]))
    a, b = together[-1][0].checkpoint()["row"], reordered[-1][2].checkpoint()["row"]
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_declared_version_is_part_of_the_id(lab: Path) -> None:
    before = own(scheduler="my_lab.rules:DecSPS").trial_id
    assert own(scheduler="my_lab.rules:DecSPS").trial_id == before
    path = lab / "my_lab" / "rules.py"
    path.write_text(path.read_text().replace("version=1", "version=2"))
    del sys.modules["my_lab.rules"]
    plugins._own.cache_clear()
    assert own(scheduler="my_lab.rules:DecSPS").trial_id != before


def test_an_entry_point_gives_a_short_name(lab: Path) -> None:
    info = lab / "my_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[polysweep.schedulers]\ndecsps = my_lab.rules:DecSPS\n")
    plugins._entry_points.cache_clear()
    try:
        assert own(scheduler="decsps").gamma_b == 1.0
        with pytest.raises(ConfigError, match="did you mean 'decsps'"):
            own(scheduler="decspss")
    finally:
        plugins._entry_points.cache_clear()


@pytest.mark.parametrize(
    ("field", "name", "message"),
    [
        ("scheduler", "no_such_module:Rule", "cannot import no_such_module: ModuleNotFoundError"),
        ("scheduler", "no_import:Rule", "cannot import no_import: ModuleNotFoundError: No module named 'nothing_of"),
        ("scheduler", "broken:Rule", "broken has no Rule"),
        ("scheduler", "broken:Halving", r"lacks start_epoch\(\), gamma\(\)"),
        ("scheduler", "broken:Unwritten", r"lacks gamma\(\)"),
        ("optimizer", "broken:Halving", r"lacks propose\(\)"),
        ("model", "broken:number", "is a int; a model is a class or a function"),
        ("model", "broken:wrong_field", "declares the use of 'learning_rate'"),
        ("model", "broken:", "is no import path"),
        (
            "model",
            "misdeclared:f",
            r"cannot import misdeclared: ConfigError: declare\(version=...\): Input should be a val",
        ),
        ("model", "broken:garbage", "has an attribute polysweep that is not from trainer.registry.declare"),
        ("model", "resnet9", "did you mean 'resnet8'"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_with_the_reason(lab: Path, field: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        own(**{field: name})
    assert raised.value.key == field


def test_an_option_of_the_wrong_name_or_type_is_named(lab: Path) -> None:
    with pytest.raises(ConfigError, match=r"'my_lab.nets:convnet' has no option 'width'; its options: channels"):
        own(model="my_lab.nets:convnet", model_options={"width": 3})
    with pytest.raises(ConfigError, match=r"model_options.channels: .*\(got 'many'\)"):
        own(model="my_lab.nets:convnet", model_options={"channels": "many"})


def test_a_mistake_in_a_spec_is_one_line_with_file_and_line(lab: Path, run: Run) -> None:
    path = lab / "mine.yaml"
    path.write_text(path.read_text().replace("my_lab.asam:ASAM", "my_lab.asam:Asam"))
    answer = run("launch", "mine.yaml", "--store", "store")
    assert answer.returncode == 2
    assert answer.stderr.strip().splitlines() == [answer.stderr.strip()]
    assert answer.stderr.startswith("error: mine.yaml:5: optimizer: 'my_lab.asam:Asam': my_lab.asam has no Asam")


STEPS = """
import torch
from torch import nn
from trainer.data import Images, Normalisation
from trainer.optimizers import Optimizer
from trainer.registry import declare
from trainer.schedulers import Gamma, Scheduler
from trainer.tasks import Classification

class Dropout(nn.Sequential):
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, classes))

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
    def initial(self): return {"seen": torch.zeros(())}
    def gamma(self, seen, state): return Gamma.of(seen.loss), state

class Raising(Optimizer):
    def propose(self, oracle, step_size, theta, state, step): raise KeyError("nothing here")

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
    def gamma(self, seen, state): return Gamma.of(0 * seen.loss + 0.1), state
"""


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=steps:nothing", "error: model: 'steps:nothing' gives a NoneType, expected a torch.nn.Module"),
        (
            "model=steps:too_few",
            "error: model: 'steps:too_few' gives logits (8, 9), expected (images, classes) = (8, 10)",
        ),
        (
            "model=steps:wide",
            "error: model: a step with model 'steps:wide' fails: TypeError: wide() missing 1 required",
        ),
        (
            "scheduler=steps:Flat",
            "error: scheduler: a step with scheduler 'steps:Flat' fails: ValueError: state 'steps",
        ),
        (
            "optimizer=steps:Raising",
            "error: optimizer: a step with optimizer 'steps:Raising' fails: KeyError: 'nothing",
        ),
        ("task=steps:a_dict", "error: task: 'steps:a_dict' gives a dict, expected a trainer.tasks.Classification"),
        ("task=steps:floats", "error: task: 'steps:floats': train has to be Images of shape (N, H, W, C) in uint8"),
        ("task=steps:beyond", "error: task: 'steps:beyond': the labels of train are 0 to 10, expected 0 to 9"),
        ("task=steps:exits", "error: task: a step with task 'steps:exits' fails: SystemExit: 0"),
        ("task=steps:miscounted", "error: task: 'steps:miscounted' declares a train_size of 9, it has 8 training"),
    ],
)
def test_a_part_that_fails_in_a_step_is_found_before_anything_is_claimed(
    lab: Path, run: Run, setting: str, message: str
) -> None:
    (lab / "steps.py").write_text(STEPS)
    values = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "polyak", "epochs": 1, "batch_size": 8}
    key, _, value = setting.partition("=")
    settings = [f"{k}={v}" for k, v in {**values, key: value}.items()]
    answer = run("train", *settings, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 2 and answer.stderr.startswith(message), answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert not records(lab / "store")


def test_a_task_that_ignores_val_fraction_is_refused(lab: Path) -> None:
    (lab / "steps.py").write_text(STEPS)
    with pytest.raises(ConfigError, match=r"'steps:keeps_all' holds out nothing for val_fraction = 0\.25"):
        rehearse(TrialConfig.parse({**TINY, "task": "steps:keeps_all", "batch_size": 4, "val_fraction": 0.25}))


def test_an_exit_in_the_middle_of_training_is_a_failure(lab: Path, run: Run) -> None:
    (lab / "steps.py").write_text(STEPS)
    values = {**TINY, "scheduler": "steps:Leaves"}
    answer = run("train", *[f"{k}={v}" for k, v in values.items()], "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 1
    (record,) = records(lab / "store").values()
    assert (record["outcome"], record["epoch"]) == ("failed", 1) and "SystemExit" in record["error"]
    assert "epoch 1/3" in answer.stdout and "epoch 2/3" not in answer.stdout


def test_a_layer_that_does_not_know_bfloat16_is_found_before_anything_is_claimed(lab: Path) -> None:
    (lab / "steps.py").write_text(STEPS)
    values = {**TINY, "model": "steps:Grouped"}
    rehearse(TrialConfig.parse(values))
    with pytest.raises(ConfigError, match="bfloat16 is not for a GroupNorm, which model 'steps:Grouped' has"):
        rehearse(TrialConfig.parse({**values, "precision": "bfloat16"}))


def test_a_module_that_draws_as_it_trains_is_seeded_and_resumes_bitwise(lab: Path) -> None:
    (lab / "steps.py").write_text(STEPS)
    (row, other) = (TrialConfig.parse({**TINY, "model": "steps:Dropout", "seed": seed}) for seed in (0, 1))
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    whole = list(train([row]))
    assert torch.equal(torch.rand(1), expected), "the global state is left alone"
    first = next(train([row]))
    rest = list(train([row], checkpoints=[first[0].checkpoint()]))
    assert by_row([first, *rest], 0) == by_row(whole, 0)
    assert by_row(whole, 0) != by_row(list(train([other])), 0)
    captured = list(train([row], capture=lambda work: work))
    assert by_row(captured, 0) == by_row(whole, 0), "neither warm-up nor capture draws"
    assert "randomness" in refusal(row)


def spec_of(lab: Path, model: str, stack: int) -> SweepSpec:
    values = {**TINY, "model": model, "epochs": 2}
    text = json.dumps(
        {"parameters": {k: {"value": v} for k, v in values.items()}, "seeds": 5, "launch": {"stack": stack}}
    )
    return SweepSpec.parse(text, "spec")


def test_a_model_that_vmap_refuses_is_planned_alone_and_the_plan_says_so(lab: Path, run: Run) -> None:
    made = plan(spec_of(lab, "broken:Looks", 4), {})
    assert [stack.width for stack in made.stacks] == [1] * 5
    (note,) = made.notes
    assert note.startswith("model 'broken:Looks' cannot be stacked (RuntimeError: vmap:") and note.endswith("K = 1")
    assert refusal(own(model="my_lab.nets:convnet")) == ""
    values = {**TINY, "model": "broken:Looks", "epochs": 1}
    path = lab / "looks.yaml"
    path.write_text(json.dumps({"parameters": {k: {"value": v} for k, v in values.items()}, "launch": {"stack": 4}}))
    answer = run("launch", path, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "warning: model 'broken:Looks' cannot be stacked" in answer.stderr
    assert "cannot be stacked" in run("plan", path, "--store", "other").stderr


def test_out_of_memory_halves_k_for_trials_that_have_not_started(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer import train as train_module

    real = train_module.EpochRunner.run

    def hungry(self: train_module.EpochRunner, *arguments: object) -> object:
        if self._stack.width > 2:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(train_module.EpochRunner, "run", hungry)
    from sweeps import worker

    monkeypatch.setattr(worker, "_too_wide", {})
    spec, store = spec_of(lab, "broken:hungry", 8), Store(str(tmp_path / "store"))
    tried = []
    for _ in range(4):
        stacks = plan(spec, store.states(spec)).stacks
        for stack in stacks:
            tried.append(stack.width)
            job = Job(store.root, tuple(t.config.canonical() for t in stack.trials), stack.width, stack.epoch)
            run = StackRun(job)
            while run.advance() is not None and not run.is_over:
                pass
            run.close()
    assert tried == [8, 4, 4, 2, 2, 2]
    for record in records(tmp_path / "store").values():
        assert (record["outcome"], record["width"]) == ("finished", 2)
        assert record["notes"] == ["out of memory at K = 8: starts at K = 4", "out of memory at K = 4: starts at K = 2"]


def test_out_of_memory_of_a_trial_that_has_started_changes_nothing_of_it(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer import train as train_module

    spec, store = spec_of(lab, "broken:hungry", 2), Store(str(tmp_path / "store"))
    (stack, *_) = plan(spec, store.states(spec)).stacks
    job = Job(store.root, tuple(t.config.canonical() for t in stack.trials), stack.width, stack.epoch)
    run = StackRun(job)
    assert run.advance() is not None

    def hungry(*_: object) -> object:
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(train_module.EpochRunner, "run", hungry)
        with pytest.raises(torch.OutOfMemoryError):
            run.advance()
    run.close()
    states = [store.state(trial.trial_id) for trial in stack.trials]
    assert {(state.state, state.width, state.epoch) for state in states} == {("interrupted", 2, 1)}
    notes = {note for record in records(tmp_path / "store").values() for note in record["notes"]}
    assert notes == {"out of memory at K = 2, which a trial keeps from its first epoch on"}
