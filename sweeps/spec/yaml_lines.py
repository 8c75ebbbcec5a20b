"""A spec's YAML: plain data with the line of every key, so that an error can point to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from polysweep.trainer.errors import UserError
from polysweep.trainer.plain_file import read_plain_file
from polysweep.trainer.text import brief, shortened

KeyPath = tuple[str | int, ...]
LARGEST_TEXT: Final = 2**19
"""Bytes of a spec. PyYAML reads about 100,000 a second; the largest specs of people have some 10,000."""
MOST_NODES: Final = 100_000
"""Values and keys of a spec, those behind an alias counted each time: a few lines of nested aliases mean billions."""
MOST_DIGITS: Final = 40
_MERGE: Final = "tag:yaml.org,2002:merge"
_TAGS: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}


class SpecError(UserError):
    """A sweep spec that cannot be used; the message starts with `file:line:`."""

    def __init__(self, message: str, line: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.reason = reason or message


class SpecReportError(SpecError):
    """Several problems of a sweep spec, each on a line of its own, and what to do about them."""

    @property
    def shown(self) -> str:
        """All the lines."""
        return str(self)


class Source:
    """A spec's file name and the line of each of its keys."""

    def __init__(self, name: str, lines: Mapping[KeyPath, int]) -> None:
        self.name = name
        self._lines = lines
        self._places: dict[KeyPath, KeyPath] = {}

    def put(self, path: KeyPath, place: KeyPath) -> None:
        """Say where the file has what is looked for at `path`: a parameter that it calls otherwise, or nests."""
        self._places[path] = place

    def error(self, path: KeyPath, message: str) -> SpecError:
        """An error at the line of `path`, or of the nearest enclosing key that the file has."""
        for length in (2, 3):
            path = (*self._places.get(path[:length], path[:length]), *path[length:])
        while path not in self._lines and path:
            path = path[:-1]
        line = self._lines.get(path, 1)
        return SpecError(f"{self.name}:{line}: {message}", line, message)


class _Loader(yaml.SafeLoader):
    """`safe_load`, except that 1e-4 is a number, as in YAML 1.2, and that merges are as YAML says."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace merges: own keys win, then the earlier mapping. PyYAML 6.0.4 compares keys by identity."""
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    self.flatten_mapping(source)
                    merged = {**{name.value: (name, one) for name, one in source.value}, **merged}
        own = {key.value: (key, value) for key, value in node.value if key.tag != _MERGE}
        node.value = list({**merged, **own}.values())


class _Dumper(yaml.SafeDumper):
    """`safe_dump` of what `_Loader` reads: a text that it would take for a number is quoted."""


for _one in (_Loader, _Dumper):
    _one.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def to_yaml(value: Any, *, in_one_line: bool = False) -> str:
    """A value as YAML that `read_yaml` reads as the same."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=in_one_line, sort_keys=False, allow_unicode=True, width=10**6
    )
    return str(text).removesuffix("\n").removesuffix("\n...").strip()


def read_text(path: Path) -> str:
    """The text of a spec file.

    Raises `SpecError` if it is missing, not a plain file (a FIFO would block), too large or not UTF-8.
    """
    try:
        content = read_plain_file(path, LARGEST_TEXT)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{shortened(str(path), 200)}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # of a NUL
        raise SpecError(f"{brief(str(path))}: cannot be read: {error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}:{line}: not UTF-8 text: byte 0x{content[error.start]:02x}") from None


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["rho=0.1", "model_options.hidden=32"]` -> a config's values, read as a spec file would."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{brief(setting)}: expected KEY=VALUE, for example rho=0.1")
        field, dot, option = key.partition(".")
        target = values.setdefault(field, {}) if dot else values
        if not isinstance(target, dict):
            raise UserError(f"{key}: {field} is given both as a whole and by option")
        if (option or field) in target:
            raise UserError(f"{key}: given twice")
        try:
            target[option or field], _ = read_yaml(text, key)
        except SpecError as error:
            message = str(error).removeprefix(f"{key}:").partition(": ")[2]  # without a line
            raise UserError(f"{key}: {message} (in {brief(setting)})") from None
        if target[option or field] is None and not (dot and text.strip()):  # null is a value of an option
            raise UserError(f"{brief(setting)}: the value is missing")
    return values


def read_yaml(
    text: str, source: str, *, recorded: bool = False, misread: list[SpecError] | None = None
) -> tuple[Any, dict[KeyPath, int]]:
    """The data and the 1-based line of every key and list item.

    Values that YAML reads otherwise than they look are errors, collected in `misread` if that is given.
    Raises `SpecError` for what is not YAML, and for what YAML allows and a spec cannot mean; of a `recorded` spec,
    which an earlier version has accepted, values such as `yes` and `1:30` mean what they mean in YAML 1.1.
    """
    if len(text) > LARGEST_TEXT:
        raise SpecError(f"{source}:1: larger than {LARGEST_TEXT} characters, which no sweep spec is")
    walk = _Walk(source, misread, checks_words=not recorded)
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, walk.lines
        walk.visit(node, ())
        return loader.construct_document(node), walk.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError(f"{source}:{line}: not valid YAML: character #x{error.character:04x}: {error.reason}") from None
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{source}:1: not valid YAML: nested too deeply") from None
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:  # a tag that its value does not fit
        raise SpecError(f"{source}:1: not valid YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def with_run_cap(text: str, count: int) -> str:
    """A spec's text with a `run_cap`, before its first key."""
    root = yaml.compose(text, Loader=_Loader)
    assert isinstance(root, yaml.MappingNode)
    at, column = root.start_mark.index, root.start_mark.column
    if root.flow_style:
        return f"{text[: at + 1]}run_cap: {count}, {text[at + 1 :]}"
    return f"{text[:at]}run_cap: {count}\n{' ' * column}{text[at:]}"


class _Walk:
    """A walk through the nodes of a document: collects lines, refuses what YAML allows and a spec cannot mean."""

    def __init__(self, source: str, misread: list[SpecError] | None, *, checks_words: bool) -> None:
        self._misread = misread
        self.lines: dict[KeyPath, int] = {}
        self._source = source
        self._checks_words = checks_words
        self._count = 0
        self._above: list[yaml.Node] = []

    def visit(self, node: yaml.Node, path: KeyPath) -> None:
        """Check a node and all below it. An alias is checked at every place that uses it."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._count += 1
        if self._count > MOST_NODES:
            raise self._error(node, f"more than {MOST_NODES} values, aliases expanded; a sweep spec has fewer")
        if node.tag not in _TAGS:
            raise self._error(node, _reading(node))
        if isinstance(node, yaml.ScalarNode):
            try:
                self._check_scalar(node)
            except SpecError as error:
                if self._misread is None:
                    raise
                self._misread.append(error)
            return
        if any(node is one for one in self._above):
            raise self._error(node, "an alias that contains itself")
        self._above.append(node)
        if isinstance(node, yaml.MappingNode):
            self._visit_items(node, path)
        else:
            for index, value in enumerate(node.value):
                self.visit(value, (*path, index))
        self._above.pop()

    def _visit_items(self, node: yaml.MappingNode, path: KeyPath) -> None:
        """The items of a mapping, then those of the mappings that it merges and does not replace."""
        for key, value in node.value:
            if key.tag != _MERGE:
                self.visit(value, self._key(key, path))
        for key, value in node.value:
            if key.tag == _MERGE:
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    self._merge(one, path, key)

    def _merge(self, node: yaml.Node, path: KeyPath, key: yaml.Node) -> None:
        """Visit what `<<` adds: every item counts, also one that is replaced, because PyYAML copies them all."""
        if not isinstance(node, yaml.MappingNode):
            raise self._error(key, "'<<' (a YAML merge key) takes a mapping, or a list of mappings")
        if any(node is one for one in self._above):
            raise self._error(key, "an alias that contains itself")
        self._above.append(node)
        own = {
            inner.value
            for inner, _ in node.value
            if isinstance(inner.value, str) and (*path, inner.value) in self.lines
        }
        fresh = [(inner, value) for inner, value in node.value if inner.tag == _MERGE or inner.value not in own]
        self._count += len(node.value) - len(fresh)
        self._visit_items(yaml.MappingNode(node.tag, fresh, node.start_mark), path)
        self._above.pop()

    def _key(self, key: yaml.Node, path: KeyPath) -> KeyPath:
        """The path of a mapping's key; an error if it is given twice, or is not a word."""
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            what = brief(key.value) if isinstance(key, yaml.ScalarNode) else "'a list or mapping'"
            raise self._error(key, f"keys are plain words, not {what}")
        here = (*path, key.value)
        if here in self.lines:
            raise self._error(key, f"key {brief(key.value)} is given twice (first on line {self.lines[here]})")
        self.lines[here] = key.start_mark.line + 1
        return here

    def _check_scalar(self, node: yaml.ScalarNode) -> None:
        kind, text = node.tag.rpartition(":")[2], str(node.value)
        if kind in ("int", "float") and len(text) > MOST_DIGITS:
            raise self._error(node, f"a number of {len(text)} characters; numbers have at most {MOST_DIGITS}")
        if kind == "int" and re.match(r"[-+]?0[0-9_]", text):
            raise self._error(node, f"{text}: YAML reads a leading zero as octal; write the number without")
        if not self._checks_words:
            return
        if kind in ("int", "float") and ":" in text:
            raise self._error(node, f"{text}: YAML reads this to the base 60; write the number, or quote a word")
        if kind == "bool" and text.lower() not in ("true", "false"):
            truth = "true" if text.lower() in ("yes", "on") else "false"
            raise self._error(node, f"{text}: YAML reads this word as {truth}; write {truth}, or quote the word")

    def _error(self, node: yaml.Node, message: str) -> SpecError:
        line = node.start_mark.line + 1
        return SpecError(f"{self._source}:{line}: {message}", line, message)


def _reading(node: yaml.Node) -> str:
    """Why a value is not for a sweep spec: how YAML reads it."""
    name = node.tag.removeprefix("tag:yaml.org,2002:")
    if name == "timestamp":
        return f"{brief(node.value)}: YAML reads this as a date; quote it"
    if name == "value":
        return "a bare '=': YAML reads it as a default value; quote it"
    tag = f"!!{name}" if name != node.tag else name
    return f"tag {brief(tag)}: a sweep spec has words, numbers, lists and mappings only"


def kind_of(value: Any) -> str:
    """What a value is, for an error message."""
    return "an empty file" if value is None else f"a {type(value).__name__}: {brief(value, 40)}"
