"""Specs and settings that are hostile, damaged or not what they look like: one line each, at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError, read_settings, read_yaml, with_run_cap
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.specs import GOOD, parse

HOSTILE = {
    "base 60": (GOOD.replace("[1e-2, 0.1]", "[1:30, 0.1]"), 11, ["1:30: YAML reads this to the base 60"]),
    "base 60 with a point": (GOOD.replace("[1e-2, 0.1]", "[1:30.5, 0.1]"), 11,
        ["1:30.5: YAML reads this to the base 60"]),
    "yes": (GOOD + "description: yes\n", 15, ["yes: YAML reads this word as true; write true, or quote"]),
    "Off": (GOOD + "name: Off\n", 15, ["Off: YAML reads this word as false"]),
    "a date": (GOOD.replace("{value: digits}", "{value: 2026-01-02}"), 4, ["'2026-01-02': YAML reads this as a date"]),
    "a merge of no mapping": (GOOD + "launch: {<<: [1]}\n", 15, ["'<<' (a YAML merge key)", "takes a mapping"]),
    "a merge of itself": (GOOD + "launch: &a {<<: *a}\n", 15, ["an alias that contains itself"]),
    "a merge with a key twice": (GOOD + "launch: {<<: {cpus: 1, cpus: 2}}\n", 15, ["'cpus' is given twice"]),
    "a tag": (GOOD + "name: !!python/name:os.system x\n", 15, ["tag '!!python/name:os.system'"]),
    "a tag of one's own": (GOOD + "name: !mine x\n", 15, ["tag '!mine'"]),
    "a set": (GOOD + "rename: !!set {a}\n", 15, ["tag '!!set'"]),
    "a tag that does not fit": (GOOD + "name: !!int ''\n", 1, ["not valid YAML"]),
    "a number of 400 digits": (GOOD.replace("{value: 2}", "{value: " + 400 * "9" + "}"), 9,
        ["a number of 400 characters"]),
    "400 digits as a word": (GOOD.replace("{value: 2}", "{value: '" + 400 * "9" + "'}"), 9,
        ["epochs", "less than or equal to"]),
    "epochs beyond any use": (GOOD.replace("{value: 2}", "{value: 10000000000000}"), 9,
        ["epochs", "1000000000 (got 1"]),
    "a stack of a million": (GOOD + "launch: {stack: 1000000}\n", 15, ["from 1 to 4096, not 1000000"]),
    "a NUL in a path": (GOOD + 'launch: {data_dir: "a\\0b"}\n', 15, ["launch.data_dir: a path must not contain a NUL"]),
    "two million seeds": (GOOD.replace("seeds: 3", "seeds: 2000000"), 14,
        ["seeds: 2000000 seeds", "at most 1000000 trials"]),
    "a seed that no generator takes": (GOOD.replace("seeds: 3", "seeds: [1, 9223372036854775808]"), 14, ["< 2^63"]),
    "renamed to a list": (GOOD + "rename: {eta: [lr]}\n", 15, ["rename: unknown parameter ['lr']"]),
    "a multiple of nothing": (
        GOOD.replace("{values: [0.1, 0.2]}", "{distribution: q_uniform, min: 0, max: 1e300, q: 1e-300}"), 7,
        ["'rho'", "too large or too small for a number"],
    ),
    "a matrix of gigabytes": (
        GOOD.replace("{value: digits}", "{value: ridge}\n  task_options: {value: {n: 1000000000, d: 1000000000}}")
        .replace("mlp", "linear"), 5, ["task_options: n = 1000000000 with d = 1000000000 is too large"],
    ),
    "units by the billion": (
        GOOD.replace("{value: mlp}", "{value: mlp}\n  model_options: {value: {hidden: 1000000000}}"), 6,
        ["model_options.hidden", "less than or equal to 100000"],
    ),
    "far too long a word": (GOOD.replace("{value: mlp}", "{value: " + "x" * 100_000 + "}"), 5,
        ["unknown model 'xxx", "(100002 characters)"]),
    "a large text": (GOOD + "#" * 600_000, 1, ["larger than 524288 characters"]),
}  # fmt: skip


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_hostile_spec_is_refused_with_its_line(case: str) -> None:
    text, line, words = HOSTILE[case]
    with pytest.raises(SpecError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"file.yaml:{line}: ") and "\n" not in message and len(message) < 500, message
    for word in words:
        assert word in message


def _bomb(*, of: str) -> str:
    """Nested aliases, eight of each in the next one: 8^29 values in 30 lines."""
    below = {
        "lists": "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]",
        "mappings": "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}, h: {0}}}",
        "merges": "{{<<: [{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]}}",
    }[of]
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {below.format(f'*a{n - 1}')}" for n in range(1, 30))]
    return "\n".join(lines)


@pytest.mark.parametrize("of", ["lists", "mappings", "merges"])
def test_a_bomb_of_aliases_is_refused_with_its_line(of: str) -> None:
    words = "more than 100000 values, aliases expanded"
    with pytest.raises(SpecError, match=rf"^file.yaml:\d+: {words}"):
        parse(_bomb(of=of))
    inside = GOOD.replace(
        "{value: mlp}", "{value: mlp}\n  model_options:\n    values:\n      " + _bomb(of=of).replace("\n", "\n      ")
    )
    with pytest.raises(SpecError, match=rf"^file.yaml:\d+: {words}"):
        parse(inside)
    with pytest.raises(UserError, match=rf"^model_options: {words}.* \(in 'model_options="):
        read_settings([f"model_options={_bomb(of=of)}"])


def test_an_alias_that_is_used_a_few_times_is_a_value() -> None:
    text = GOOD.replace("[1e-2, 0.1]", "&rates [1e-2, 0.1]").replace(
        "{value: polyak}", "{value: cosine}, lr: {values: *rates}"
    )
    assert len(parse(text).trials) == 2 * 2 * 3 * 2


def test_a_launched_spec_is_read_as_it_was_taken() -> None:
    text = GOOD.replace("{value: 2}", "{value: 1:30}")
    assert SweepSpec.parse(text, "sweep s", recorded=True).trials[0].config.epochs == 90


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "cannot be read: it is a FIFO"),
        (lambda p: p.symlink_to("/dev/zero"), "cannot be read: it is a device"),
        (lambda p: p.symlink_to(p), "cannot be read: Too many levels"),
        (Path.mkdir, "cannot be read: it is a folder"),
        (lambda p: p.write_bytes(GOOD.encode("utf-16")), r"file.yaml:1: not UTF-8 text: byte 0xff"),
        (lambda p: p.write_bytes(GOOD.encode() + b"\n\xe9"), r"file.yaml:16: not UTF-8 text: byte 0xe9"),
        (lambda p: p.write_bytes(b"a: 1\n" * 200_000), "cannot be read: it has 1000000 bytes, more than 524288"),
        (lambda p: p.write_bytes(b""), "file.yaml:1: a sweep spec is a mapping, not an empty file"),
        (lambda p: p.write_bytes(b"\0" * 9), "file.yaml:1: not valid YAML: character #x0000"),
    ],
)
def test_what_is_no_text_file_is_named(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "file.yaml")
    with pytest.raises(SpecError, match=message):
        SweepSpec.load(tmp_path / "file.yaml")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_bytes(GOOD.encode("utf-8-sig"))
    assert len(SweepSpec.load(tmp_path / "file.yaml").trials) == 18


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rho=1:30", "rho: 1:30: YAML reads this to the base 60; write the number, or quote a word (in 'rho=1:30')"),
        ("rho=yes", "rho: yes: YAML reads this word as true; write true, or quote the word (in 'rho=yes')"),
        ("epochs=2026-01-02", "epochs: '2026-01-02': YAML reads this as a date; quote it (in 'epochs=2026-01-02')"),
        ("epochs=" + "9" * 400, "epochs: a number of 400 characters; numbers have at most 40 (in "),
        ("model=!!set {a}", "model: tag '!!set': a sweep spec has words, numbers, lists and mappings only"),
        ("x" * 600_000 + "=1", "x"),
        ("rho=" + "1" * 600_000, "rho: larger than 524288 characters"),
    ],
)
def test_a_setting_that_means_something_else_is_named(setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        TrialConfig.parse(read_settings([setting]))
    assert str(caught.value).startswith(message)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: no such file"):
        SweepSpec.load(tmp_path / "nowhere.yaml")


def test_settings_of_the_command_line_read_like_a_spec() -> None:
    assert read_settings(["rho=1e-4", "model=mlp", "model_options.hidden=8"]) == {
        "rho": 1e-4,
        "model": "mlp",
        "model_options": {"hidden": 8},
    }
    for wrong in (["rho"], ["=3"], ["rho=1", "rho=2"], ["rho=["]):
        with pytest.raises(UserError):
            read_settings(wrong)


def test_a_merge_key_adds_what_is_not_there_with_its_lines() -> None:
    text = "a: &a\n  lr: 1\n  on1: {z: 2}\nb: &b\n  <<: *a\n  lr: 3\nc:\n  <<: [*b, {rho: 4}]\n"
    data, lines = read_yaml(text, "f")
    b = {"lr": 3, "on1": {"z": 2}}
    assert data == {"a": {"lr": 1, "on1": {"z": 2}}, "b": b, "c": {**b, "rho": 4}}
    assert [lines[("b", "lr")], lines[("b", "on1", "z")], lines[("c", "lr")], lines[("c", "rho")]] == [6, 3, 6, 8]


def test_a_run_cap_is_put_before_the_first_key() -> None:
    for text in ("a: 1\n", "# b\n---\n  a: 1\n  c: [2]\n", "{a: 1}", '%YAML 1.1\n---\n{"a": 1,\n "c": 2}\n'):
        assert read_yaml(with_run_cap(text, 7), "f")[0] == {"run_cap": 7, **read_yaml(text, "f")[0]}


@pytest.mark.parametrize("key", ["q", "qq"])
def test_own_keys_win_and_then_the_earlier_of_several_merges(key: str) -> None:
    text = f"""
a: &a {{{key}: 1}}
b: &b {{<<: *a, {key}: 2}}
c: {{<<: *b}}
d: {{<<: [*a, *b]}}
e: {{{key}: 3, <<: [*b, *a]}}
f: {{<<: [{{other: 5}}, *b]}}
"""
    data, _ = read_yaml(text, "spec")
    assert [data[name][key] for name in "abcdef"] == [1, 2, 2, 1, 3, 2]
