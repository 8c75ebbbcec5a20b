"""Which source a user's own part has: a hash that tells apart two of the same name and version."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, Final

INSTALLED: Final = {"site-packages", "dist-packages"}
DIGITS: Final = 12


def source_hash(module: str) -> str:
    """The first 12 hex digits of the SHA-256 of a module's source, and of the source that it needs of its own kind.

    That is: the packages that it is in, and every module that one of these imports, wherever in its text, from the same
    top-level package or, unless that one is installed, from others that are not installed either. Where they are does
    not matter: on a cluster each may have a folder of its own, and loaders read zip files too. Empty if there is no
    source.
    """
    texts: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = _spec(name) if name not in texts and _are_related(_top(name), _top(module)) else None
        if spec is not None:
            texts[name] = _content(spec)
            waiting += [name.rpartition(".")[0] or name, *_imports(texts[name], spec)]
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(f"{name} {len(texts[name])}\n".encode() + texts[name])
    return digest.hexdigest()[:DIGITS] if any(texts.values()) else ""


def sources_text(sources: Mapping[str, str] | None) -> str | None:
    """The recorded hashes of a trial's own parts in a line, as a column has them; None if it has none."""
    return ", ".join(f"{kind} {digits}" for kind, digits in sorted(sources.items())) if sources else None


def _top(name: str) -> str:
    return name.partition(".")[0]


def _are_related(top: str, own: str) -> bool:
    """Whether a top-level module is that of the part, or is like it a user's own code."""
    return top == own or (_is_local(own) and _is_local(top))


def _is_local(top: str) -> bool:
    """Whether a top-level module is neither of Python, nor installed, nor of polysweep."""
    spec = None if top == "polysweep" or top in sys.stdlib_module_names else _spec(top)
    if spec is None:
        return False
    place = Path(next(iter(spec.submodule_search_locations or ()), spec.origin or ""))
    return not INSTALLED & set(place.parts) and next(place.parent.glob("*.dist-info"), None) is None


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is; None for what is not one, such as a class in a module. Nothing is imported."""
    package = name.rpartition(".")[0]
    try:
        if not package:
            return find_spec(name)
        above = _spec(package)
        places = None if above is None else above.submodule_search_locations
        return None if places is None else PathFinder.find_spec(name, places)
    except (ImportError, AttributeError, ValueError):
        return None


def _content(spec: ModuleSpec) -> bytes:
    """A module's text, with the same line ends everywhere, or if it has none its file; empty if neither can be read."""
    loader: Any = spec.loader
    try:
        text = loader.get_source(spec.name)
        return text.encode() if text is not None else bytes(loader.get_data(spec.origin))
    except (AttributeError, ImportError, OSError):
        return b""


def _imports(content: bytes, spec: ModuleSpec) -> Iterator[str]:
    """The names of what a module imports, which are modules or what is in them."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # of a compiled module
        return
    package = spec.parent or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the package, in a place that is never reached
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
