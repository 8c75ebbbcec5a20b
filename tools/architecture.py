"""Draws docs/architecture.svg: the rooms in the order of the layers contract, and what imports what.

    python tools/architecture.py           write the picture
    python tools/architecture.py --check   fail if the picture is not that of the code

The order is that of `[tool.importlinter]` in pyproject.toml, the arrows come from the imports. An arrow is left out if
a longer path leads to the same room.
"""

from __future__ import annotations

import ast
import html
import itertools
import sys
import tomllib
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "architecture.svg"
COLOURS: Final = {"analysis": "#009e73", "sweeps": "#0072b2", "trainer": "#d55e00"}
ROW, LEFT, TOP, TEXT, LANE, SHORTEST, WIDTH = 20, 250, 30, 440, 9, 12, 1060
LONGEST_TEXT: Final = 100


def listed() -> list[str]:
    """The modules of the layers contract from top to bottom, without `polysweep.`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return [name.strip() for layer in contract["layers"] for name in layer.split("|")]


def rooms(modules: list[str]) -> list[str]:
    """The packages of the modules; modules alone where others stand between those of one package."""
    packages = [name.rpartition(".")[0] if name.count(".") > 1 else name for name in modules]
    blocks = [package for package, _ in itertools.groupby(packages)]
    whole = {package for package in blocks if blocks.count(package) == 1}
    names = (package if package in whole else name for package, name in zip(packages, modules, strict=True))
    return list(dict.fromkeys(names))


def room_of(module: str, modules: list[str]) -> str | None:
    """The room that a module is in; None for the packages.

    Raises `ValueError` for a file without a place in the order of imports.
    """
    name = module.removeprefix("polysweep").removeprefix(".")
    if name in modules:
        return next(room for room in rooms(modules) if name == room or name.startswith(f"{room}."))
    if (ROOT / "polysweep" / name.replace(".", "/")).is_dir():
        return None
    raise ValueError(f"{module} is in no layer of [tool.importlinter] in pyproject.toml")


def imports_between(modules: list[str]) -> dict[str, set[str]]:
    """By room, the rooms that it imports."""
    graph = grimp.build_graph("polysweep", exclude_type_checking_imports=True, cache_dir=None)
    imported: dict[str, set[str]] = {name: set() for name in rooms(modules)}
    for module in sorted(graph.modules):
        room = room_of(module, modules)
        for target in graph.find_modules_directly_imported_by(module):
            other = room_of(target, modules)
            if room and other and room != other:
                imported[room].add(other)
    return imported


def without_shortcuts(imported: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer path replaces."""
    reachable: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in reachable:
            reachable[room] = set()  # also ends the search in a circle, which the contract refuses
            reachable[room] = set().union(imported[room], *map(reach, imported[room]))
        return reachable[room]

    return [
        (room, target)
        for room, targets in imported.items()
        for target in sorted(targets)
        if not any(target in reach(between) for between in targets - {target})
    ]


def purpose(room: str) -> str:
    """The first line of the room's docstring."""
    path = ROOT / "polysweep" / room.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    line = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 3].rsplit(' ', 1)[0]} ..."


def lanes(arrows: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """A lane for every arrow between two rows: short arrows are near the names, and none of one lane overlap."""
    taken: list[list[tuple[int, int]]] = []
    lane_of = {}
    for arrow in sorted(arrows, key=lambda arrow: (arrow[1] - arrow[0], arrow)):
        free = (n for n, lane in enumerate(taken) if all(arrow[1] <= a or b <= arrow[0] for a, b in lane))
        number = next(free, len(taken))
        if number == len(taken):
            taken.append([])
        taken[number].append(arrow)
        lane_of[arrow] = number
    return lane_of


def draw() -> str:
    """The picture as SVG."""
    modules = listed()
    names = rooms(modules)
    row = {name: number for number, name in enumerate(names)}
    arrows = [(row[a], row[b]) for a, b in without_shortcuts(imports_between(modules))]
    height = TOP + ROW * len(names) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        "<title>Rooms of polysweep; an arrow points from a room to one that it imports</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>',
        f'<text x="{LEFT}" y="18" font-weight="bold">room</text>',
        f'<text x="{TEXT}" y="18" font-weight="bold">what is in it</text>',
    ]
    for (start, end), lane in sorted(lanes(arrows).items()):
        colour = COLOURS.get(names[start].partition(".")[0], "#666")
        x, y, z = LEFT - 8, TOP + ROW * start + ROW // 2, TOP + ROW * end + ROW // 2
        bend = x - SHORTEST - LANE * lane
        parts.append(
            f'<path d="M{x} {y + 3}H{bend}V{z - 3}H{x}" fill="none" stroke="{colour}" opacity="0.6" '
            'marker-end="url(#tip)"/>'
        )
    for name, number in row.items():
        y = TOP + ROW * number
        colour = COLOURS.get(name.partition(".")[0], "#666")
        parts += [
            f'<rect x="{LEFT - 6}" y="{y + 1}" width="{TEXT - LEFT - 4}" height="{ROW - 2}" rx="3" fill="{colour}" '
            'fill-opacity="0.15"/>',
            f'<text x="{LEFT}" y="{y + 14}">{name}</text>',
            f'<text x="{TEXT}" y="{y + 14}" fill="#444">{html.escape(purpose(name))}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Write the picture, or compare it."""
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(draw(), encoding="utf-8")
        return 0
    if PICTURE.read_text(encoding="utf-8") == draw():
        return 0
    print(f"{PICTURE.relative_to(ROOT)} is not that of the code: run `make architecture`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
