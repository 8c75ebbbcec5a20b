"""The hash of an own part's source: what changes it, wherever the part is imported from."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from polysweep.trainer.components.sources import source_hash, sources_text

FILES = {
    "net_lab/__init__.py": "",
    "net_lab/nets.py": "import math\nfrom . import blocks\nfrom torch import nn\n",
    "net_lab/blocks.py": "import net_lab.deep.inner, beside\n",
    "net_lab/deep/__init__.py": "",
    "net_lab/deep/inner.py": "WIDTH = 8\n",
    "net_lab/unused.py": "A = 1\n",
    "beside.py": "B = 1\n",
    "script.py": "C = 1\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package of several files, and modules beside it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("net_lab", "beside", "script")]:
        del sys.modules[name]


def test_a_hash_is_of_the_module_and_of_all_that_it_imports_of_its_own_kind(folder: Path) -> None:
    first = source_hash("net_lab.nets")
    assert len(first) == 12 and source_hash("net_lab.nets") == first
    for name, text in FILES.items():
        (folder / name).write_text(text + "# changed\n")
        changed = source_hash("net_lab.nets") != first
        assert changed == (name not in ("net_lab/unused.py", "script.py")), name
        (folder / name).write_text(text)
    assert source_hash("net_lab.nets") == first
    assert not {"net_lab", "net_lab.deep", "beside"} & set(sys.modules), "nothing is imported for it"


def test_it_does_not_matter_where_its_modules_are(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster each module that travels has a folder of its own."""
    first = source_hash("net_lab.nets")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "beside.py").rename(elsewhere / "beside.py")
    monkeypatch.syspath_prepend(str(elsewhere))
    assert source_hash("net_lab.nets") == first


def test_line_ends_change_nothing(folder: Path) -> None:
    first = source_hash("net_lab.nets")
    (folder / "net_lab" / "nets.py").write_bytes(FILES["net_lab/nets.py"].replace("\n", "\r\n").encode())
    assert source_hash("net_lab.nets") == first


def test_a_part_in_a_zip_file_has_the_hash_of_the_same_files(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = source_hash("net_lab.nets")
    packed = tmp_path_factory.mktemp("packed") / "lab.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    monkeypatch.setattr(sys, "path", [str(packed), *(place for place in sys.path if place != str(folder))])
    importlib.invalidate_caches()
    assert source_hash("net_lab.nets") == first


@pytest.mark.parametrize("target", ["site-packages", "deps"])
def test_an_installed_part_is_its_package_alone(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    place = tmp_path_factory.mktemp("lib") / target
    (place / "net_lab_2-1.0.dist-info").mkdir(parents=True)
    (place / "net_lab_2").mkdir(parents=True)
    (place / "net_lab_2" / "__init__.py").write_text("import another_2")
    (place / "another_2.py").write_text("A = 1")
    monkeypatch.syspath_prepend(str(place))
    first = source_hash("net_lab_2")
    (place / "another_2.py").write_text("A = 2")
    assert source_hash("net_lab_2") == first
    (place / "net_lab_2" / "__init__.py").write_text("import another_2, math")
    assert source_hash("net_lab_2") not in ("", first)


def test_what_has_no_source_has_no_hash() -> None:
    assert source_hash("nothing_of_that_name") == "" == source_hash("sys")
    assert sources_text(None) is None is sources_text({})
    assert sources_text({"task": "ab", "model": "cd"}) == "model cd, task ab"
