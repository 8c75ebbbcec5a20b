"""The options of `polysweep probe`."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.store import Store
from tests.support.commands import assert_user_error
from tests.support.probing import Run, spec_file


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--corruptions", "nois"), ("unknown corruption", "'nois'", "noise", "occlusion", "1 to 5")),
        (("--corruptions", "noise-6"), ("'noise-6'", "1 to 5")),
        (("--corruptions", "blur", "--images", "9"), ("--images", "leave it out")),
        (("--precision", "half"), ("--precision", "float32", "'half'")),
        (("--radii", "0.1,x"), ("--radii", "0.1,x", "numbers")),
        (("--radii", "0.2,0.1"), ("--radii", "increase")),
        (("--radii", "nan"), ("--radii",)),
        (("--radii", "0.1,0.10000001"), ("--radii", "0.1")),
        (("--eigenvalues", "30"), ("--eigenvalues: 30", "--steps", "20")),
        (("--vectors", "1"), ("--vectors", "2")),
        (("--images", "0"), ("--images",)),
        (("--images", "2000"), ("--images", "2000", "1437 training images")),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(
    options: tuple[str, ...], words: tuple[str, ...], launched: Path, run_here: Run
) -> None:
    answer = run_here("probe", "small", "--store", launched, *options)
    assert_user_error(answer, *words)
    assert answer.stderr.count("\n") == 1 and not list(launched.glob("sweeps/small/probes/*"))


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Store with a trained sweep."""
    from polysweep.sweeps.job import LaunchOptions
    from polysweep.sweeps.spec.spec import SweepSpec
    from tests.support.without_ray import one_by_one

    folder = tmp_path_factory.mktemp("launched")
    spec = SweepSpec.load(spec_file(folder, seeds=1))
    store = Store(str(folder / "store"))
    store.write_sweep(spec)
    one_by_one(spec, store, LaunchOptions("disabled"), "")
    return folder / "store"
