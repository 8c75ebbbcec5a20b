"""A spec's YAML: plain data with the line of every key, so that an error can point to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from trainer.registry import UserError

KeyPath = tuple[str | int, ...]


class SpecError(UserError):
    """A sweep spec that cannot be used; the message starts with `file:line:`."""


class Source:
    """A spec's file name and the line of each of its keys."""

    def __init__(self, name: str, lines: Mapping[KeyPath, int]) -> None:
        self._name = name
        self._lines = lines

    def error(self, path: KeyPath, message: str) -> SpecError:
        """An error at the line of `path`, or of the nearest enclosing key that the file has."""
        while path not in self._lines and path:
            path = path[:-1]
        return SpecError(f"{self._name}:{self._lines.get(path, 1)}: {message}")


class _Loader(yaml.SafeLoader):
    """`safe_load`, except that 1e-4 is a number, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["rho=0.1", "model_options.hidden=32"]` -> a config's values, read as a spec file would."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{setting!r}: expected KEY=VALUE, for example rho=0.1")
        field, dot, option = key.partition(".")
        target = values.setdefault(field, {}) if dot else values
        if not isinstance(target, dict):
            raise UserError(f"{key}: {field} is given both as a whole and by option")
        if (option or field) in target:
            raise UserError(f"{key}: given twice")
        try:
            target[option or field], _ = read_yaml(text, setting)
        except SpecError as error:
            raise UserError(str(error)) from None
        if target[option or field] is None:
            raise UserError(f"{setting!r}: the value is missing")
    return values


def read_yaml(text: str, source: str) -> tuple[Any, dict[KeyPath, int]]:
    """The data and the 1-based line of every key and list item.

    Raises `SpecError` for what is not YAML, and for what YAML allows and a spec cannot mean.
    """
    lines: dict[KeyPath, int] = {}
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, lines
        _walk(node, (), lines, source)
        return loader.construct_document(node), lines
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
    except (ValueError, KeyError, AttributeError, TypeError) as error:  # a tag or date that its value does not fit
        raise SpecError(f"{source}:1: not valid YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _walk(
    node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], source: str, above: tuple[yaml.Node, ...] = ()
) -> None:
    """Collect lines; refuse what YAML allows and a spec cannot mean."""
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if node in above:
        raise SpecError(f"{source}:{line}: an alias that contains itself")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise SpecError(f"{source}:{line}: keys are plain words, not {shown!r}")
            here = (*path, key.value)
            if here in lines:
                raise SpecError(f"{source}:{line}: key {key.value!r} is given twice (first on line {lines[here]})")
            lines[here] = line
            _walk(value, here, lines, source, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, source, (*above, node))
    elif node.tag == "tag:yaml.org,2002:int" and re.match(r"[-+]?0[0-9_]", str(node.value)):
        raise SpecError(f"{source}:{line}: {node.value}: YAML reads a leading zero as octal; write the number without")


def kind_of(value: Any) -> str:
    """What a value is, for an error message."""
    return "an empty file" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
