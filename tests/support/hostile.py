"""What is put in the place of a Store's files and of a spec's text: made at random, of every kind."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyarrow import parquet

from tests.support.specs import GOOD

# What a value is replaced by.

NUMBERS = (0, -1, 2, 1.5, 2**31, 2**63, -(2**63), 10**30, 10**400, 1e308, -0.0)
TEXTS = (
    "",
    "x",
    "[/]",
    "[red]x[/red]",
    "\x1b[2J",
    "a\nb",
    "a|b",
    "=1+1",
    "\u202e",
    "x" * 10_000,
    "a\0b",
    "../../x",
    "é",
)
VALUES: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"a": None}, {"": []}, [1, "a", None], {"parameters": {}},
    *NUMBERS, *TEXTS,
)  # fmt: skip


# Damage of a file.


def replace_node(value: Any, rng: random.Random) -> Any:
    """The value with something in it replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: replace_node(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], replace_node(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def _other_bytes(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice((0, 1, 7, 4096))))


def _flipped(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 50))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _truncated(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _other_json(path: Path, rng: random.Random) -> None:
    try:
        value = replace_node(json.loads(path.read_bytes()), rng)
    except ValueError:
        value = rng.choice(VALUES)
    path.write_text(json.dumps(value))


def _odd_json(path: Path, rng: random.Random) -> None:
    path.write_text(
        rng.choice(("[" * 100_000, "9" * 10_000, '{"a":' * 5_000, "NaN", '"\\ud800"', "1e999", '{"format": 99}'))
    )


def _fifo(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path, rng: random.Random) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def _device(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/null", "/dev/tty")))


def _loop(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path)


def _folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _unreadable(path: Path, rng: random.Random) -> None:
    path.chmod(0)


def _of_terabytes(path: Path, rng: random.Random) -> None:
    os.truncate(path, 2**40)


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def _stray(path: Path, rng: random.Random) -> None:
    for folder in (path.parent, path.parent.parent):
        (folder / rng.choice((".DS_Store", "record.json~", "claim-x.json", "\x1b[31m", "spec-.yaml"))).write_bytes(
            b"\0"
        )


def _file_for_folder(path: Path, rng: random.Random) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_bytes(b"")


def _columns(path: Path, rng: random.Random) -> None:
    """A history with a column of another type, without one, or with other epochs."""
    history = path.parent / "history.parquet"
    rows = parquet.read_table(history).to_pylist() if history.exists() else []
    name = rng.choice(list(rows[0])) if rows else "epoch"
    values = rng.choice((["a", "b", "c"], [[1], [2], [3]], [{"a": 1}] * 3, [1, 1, 1], [None] * 3, [True] * 3, None))
    columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
    columns.pop(name, None)
    values = None if values is None else values[: len(rows)]
    parquet.write_table(pa.table({**columns, **({} if values is None else {name: values})}), history)


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    _other_bytes, _flipped, _truncated, _other_json, _other_json, _odd_json, _fifo, _socket, _device, _loop, _folder,
    _unreadable, _of_terabytes, _gone, _stray, _file_for_folder, _columns,
)  # fmt: skip


# Specs.

TOKENS = (
    "*a", "&a ", "<<: ", "!!python/object:os.system ", "!!binary ", "1:30", "yes", "0x1F", "1_000", "2020-01-01",
    ".inf", ".nan", "~", "9" * 400, "1e999", "-", "?", ":", "|", ">", "%", "@", "`", "'", '"', "#", "{", "}", "[", "]",
    ",", "\t", "\n", "\0", "\ufeff", "\x1b", "\u2028", "\U0001f600", "---\n", "...\n", "- ", "{value: ", "values: ",
    "parameters: ",
)  # fmt: skip


def _text_of(rng: random.Random) -> str:
    """A good spec with some places of its text changed."""
    text = GOOD
    for _ in range(rng.randrange(1, 5)):
        at, width = rng.randrange(len(text)), rng.choice((0, 0, 1, 5, 40))
        text = text[:at] + rng.choice(TOKENS) + text[at + width :]
    return text


def _tree_of(rng: random.Random) -> str:
    """A good spec with some of its values replaced."""
    tree = {
        **yaml.safe_load(GOOD),
        "launch": {"stack": 2, "data_dir": "d"},
        "rename": {"eta": "lr"},
        "description": "d",
    }
    if rng.random() < 0.5:
        tree |= {"method": "random", "run_cap": 3, "early_terminate": {"type": "hyperband", "min_iter": 1}}
        tree["parameters"]["rho"] = {"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.1}
    for _ in range(rng.randrange(1, 3)):
        tree = replace_node(tree, rng)
        if not isinstance(tree, dict):
            break
    return yaml.safe_dump(tree) if rng.random() < 0.5 else json.dumps(tree)


def _bomb(rng: random.Random) -> str:
    """Nested aliases, each of ten of the one before: of lists, mappings or merges, or within an option's values."""
    kind, width = rng.choice(("list", "mapping", "merge", "option")), rng.randrange(5, 12)
    lines = ["a0: &a0 {x: 1}" if kind != "list" else "a0: &a0 [x]"]
    for level in range(1, rng.randrange(8, 30)):
        below = [f"*a{level - 1}"] * width
        inner = {
            "list": f"[{', '.join(below)}]",
            "option": f"[{', '.join(below)}]",
            "merge": f"{{<<: [{', '.join(below)}]}}",
            "mapping": "{" + ", ".join(f"k{at}: {one}" for at, one in enumerate(below)) + "}",
        }[kind]  # fmt: skip
        lines.append(f"a{level}: &a{level} {inner}")
    if kind == "option":
        return GOOD + "program:\n  " + "\n  ".join(lines) + f"\ndescription: *a{len(lines) - 1}\n"
    return "\n".join(lines)


def _sizes(rng: random.Random) -> str:
    """A great deal of something."""
    many = rng.choice((1_000, 20_000, 400_000))
    return (
        rng.choice(("[", "{", "- ", "a: ", "? ", "&a ", "x", " ", "\n", "#", "'", "k: 1\n", "!", "\\", "--- a\n"))
        * many
    )


def _bytes(rng: random.Random) -> bytes:
    text = GOOD.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32")))
    return rng.choice((text, rng.randbytes(500), text[: rng.randrange(len(text))] + rng.randbytes(9)))


SPECS: tuple[Callable[[random.Random], str | bytes], ...] = (
    _text_of,
    _text_of,
    _tree_of,
    _tree_of,
    _bomb,
    _sizes,
    _bytes,
)
