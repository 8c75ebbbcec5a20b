"""Damaged Stores and hostile specs, made at random: every command ends in time, in one line, and shows the rest."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import read_settings
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.hostile import DAMAGES, NUMBERS, SPECS, TEXTS, TOKENS
from tests.support.inprocess import in_time, polysweep
from tests.support.made import SPEC, by_lr, sweep

SHORT, LONG = 12, 200
NAME = "made"
QUICK = settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
"""Nothing is made smaller: a seed of random damage has no smaller one."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Store with a sweep of ended trials, and a bayes sweep with a point; never changed."""
    folder = tmp_path_factory.mktemp("whole")
    sweep(folder, lambda c: "failed" if c.lr == 1.0 and c.rho == 0.4 else by_lr(c), seeds=1)
    shutil.rmtree(folder / "cache")
    store = Store(str(folder))
    for trial_id in store.files.names("trials"):
        claim = store.claim(trial_id)
        assert claim is not None
        claim.release()
    bayes = {"name": "searched", "method": "bayes", "run_cap": 6, "tuned": []}
    text = json.dumps({**SPEC, **bayes, "variants": [{"scheduler": {"value": "polyak"}}]})
    searched = SweepSpec.parse(text, "searched.yaml")
    values = {name: parameter.at(0.5) for name, parameter in searched.space[0].items()}
    point = json.dumps({"point": {"variant": 0, "values": values}, "raw": {}})
    store.files.write("sweeps/searched/points/000000.json", point.encode())
    store.write_sweep(searched)
    store.files.write(f"sweeps/{NAME}/launch-0123456789abcdef.json", store.files.read(claim.path) or b"")
    return folder


def damaged(whole: Path, place: Path, damage: Callable[[Path, random.Random], None], rng: random.Random) -> str:
    """A copy of the Store with one file damaged; returns the trial that it belongs to, empty where to none."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    files = sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file())
    trials, others = ([f for f in files if (f.parts[0] == "trials") == of_trial] for of_trial in (True, False))
    chosen = rng.choice(trials if rng.random() < 0.8 else others)
    damage(place / chosen, rng)
    return chosen.parts[1] if chosen.parts[0] == "trials" else ""


def check_commands(place: Path, victim: str, before: dict[str, str], *, reports: bool) -> None:
    """Every reading command ends well, and of a Store with one damaged trial all others are shown."""
    store, cache = ("--store", place), ("--cache", place / "cache")
    code, out, err = polysweep("status", NAME, *store, "--json")
    shown = {one["trial_id"]: one["outcome"] for one in json.loads(out)["trials"]} if code == 0 else {}
    is_newer = "install a newer one" in err
    if victim and not is_newer:
        assert code == 0, err
        others = {trial_id: state for trial_id, state in before.items() if trial_id != victim}
        assert others.items() <= shown.items()
    for command in ("status", "table", "status searched"):
        first, *rest = command.split()
        code, out, err = polysweep(first, *(rest or [NAME]), *store, *(cache if first == "table" else ()))
        if victim and not is_newer:
            assert code == 0, f"{command}: {err}"
    for trial_id in (victim, next(t for t in before if t != victim)):
        polysweep("logs", NAME, trial_id or next(iter(before)), *store)
    if reports:
        code, _, err = polysweep("report", NAME, *store, *cache, "--out", place / "report.html")
        assert code == 0 or not victim or is_newer, err


def fuzz_store(whole: Path, place: Path, examples: int, counts: Counter[str], *, fixed: bool) -> None:
    before = {t: r["outcome"] for t, r in Store(str(whole)).records(Store(str(whole)).files.names("trials"))}  # type: ignore[index]

    @settings(QUICK, max_examples=examples, derandomize=fixed)
    @given(st.sampled_from(DAMAGES), st.randoms(use_true_random=False))
    def check(damage: Callable[[Path, random.Random], None], rng: random.Random) -> None:
        victim = damaged(whole, place, damage, rng)
        counts[damage.__name__] += 1
        check_commands(place, victim, before, reports=not fixed and rng.random() < 0.05)

    check()


def fuzz_specs(folder: Path, examples: int, counts: Counter[str], *, fixed: bool) -> None:
    path = folder / "file.yaml"

    @settings(QUICK, max_examples=examples, derandomize=fixed)
    @given(st.sampled_from(SPECS), st.randoms(use_true_random=False))
    def check(make: Callable[[random.Random], str | bytes], rng: random.Random) -> None:
        made = make(rng)
        counts[make.__name__] += 1
        path.write_bytes(made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass"))
        code, _, err = polysweep("plan", path, "--store", folder / "none")
        if code == 2:
            errors = [line for line in err.splitlines() if not line.startswith("warning: ")]
            first, *rest = errors
            assert first.startswith("error: ") and len(first) < 2_000, errors
            assert not rest or " problems" in first or "" in rest, errors

    check()


def fuzz_settings(examples: int, counts: Counter[str], *, fixed: bool) -> None:
    """`train KEY=VALUE`: what is read of the command line, without the training."""
    names = [*TrialConfig.model_fields, "task_options.n", "model_options.hidden", "nothing", "", "rho.x"]
    texts = st.one_of(st.text(max_size=20), st.sampled_from([*TOKENS, *map(str, NUMBERS), *TEXTS]))

    @settings(QUICK, max_examples=examples, derandomize=fixed)
    @given(st.lists(st.tuples(st.sampled_from(names), texts), max_size=4))
    def check(given_: list[tuple[str, str]]) -> None:
        counts["settings"] += 1
        base = ["task=digits", "model=mlp", "optimizer=usam", "scheduler=polyak"]
        with in_time():
            try:
                TrialConfig.parse(read_settings([*base, *(f"{name}={text}" for name, text in given_)]))
            except UserError as error:
                assert len(str(error)) < 2_000

    check()


def test_a_damaged_store_is_read_as_far_as_it_can_be(whole: Path, tmp_path: Path) -> None:
    fuzz_store(whole, tmp_path / "store", SHORT, Counter(), fixed=True)


def test_a_hostile_spec_is_one_line(tmp_path: Path) -> None:
    fuzz_specs(tmp_path, 2 * SHORT, Counter(), fixed=True)


def test_a_hostile_setting_is_one_line() -> None:
    fuzz_settings(2 * SHORT, Counter(), fixed=True)


@pytest.mark.long
def test_many_bad_inputs(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    try:
        fuzz_store(whole, tmp_path / "store", LONG, counts, fixed=False)
        fuzz_specs(tmp_path, 2 * LONG, counts, fixed=False)
        fuzz_settings(2 * LONG, counts, fixed=False)
    finally:
        with capsys.disabled():
            total = sum(counts.values())
            print(
                f"\n{total} bad inputs: " + ", ".join(f"{n} {kind.strip('_')}" for kind, n in counts.most_common()),
                file=sys.stderr,
            )
    assert sum(counts.values()) >= 500
