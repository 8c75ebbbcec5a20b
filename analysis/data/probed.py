"""What was measured of trained trials, as further columns of `runs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from polysweep.analysis.data.frames import EPOCHS
from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.probes import Probe, ProbeFiles
from polysweep.sweeps.store.store import Store


def with_probes(runs: pa.Table, name: str, store: Store) -> tuple[pa.Table, dict[str, str], list[str]]:
    """The runs with `last/<column>` and `best/<column>` of what was measured; by column which epoch that was; damage.

    A measurement belongs to the epoch whose checkpoint it was made from: the last one, or with `launch.keep: best` the
    best; a run of which that epoch is both has it twice. Only the settings that were asked for last are read.
    """
    epochs_measured: dict[str, str] = {}
    ids, outcomes = runs["trial_id"].to_pylist(), runs["outcome"].to_pylist()
    ended = [trial_id for trial_id, outcome in zip(ids, outcomes, strict=True) if outcome in ("finished", "stopped")]
    probes, damage = ProbeFiles(store.files), list[str]()
    try:
        measured_with = probes.settings(name)
    except NewerFormatError:
        raise
    except StoreError as error:
        return runs, {}, [f"{error}; `polysweep probe {name}` writes it again"]
    for settings in measured_with:
        by_trial, damaged = probes.read(ended, settings.key)
        damage += [f"{text}; `polysweep probe {name}` measures it again" for text in damaged]
        columns = {"last": runs["epoch"].to_pylist(), "best": runs["best_epoch"].to_pylist()}
        at = {which: _measured_at(ids, columns[which], by_trial) for which in EPOCHS}
        which = max(EPOCHS[::-1], key=lambda one: sum(probe is not None for probe in at[one]))
        for column in settings.columns:
            epochs_measured[column] = which
            for one in EPOCHS:
                values = [None if probe is None else probe["columns"].get(column) for probe in at[one]]
                runs = runs.append_column(f"{one}/{column}", pa.array(values, pa.float64()))
    return runs, epochs_measured, damage


def _measured_at(ids: Sequence[str], epochs: Sequence[int | None], by_trial: Mapping[str, Probe]) -> list[Probe | None]:
    """The measurement of each run if it is of this epoch."""
    probes = [by_trial.get(trial_id) for trial_id in ids]
    return [
        probe if probe is not None and probe["epoch"] == epoch else None
        for probe, epoch in zip(probes, epochs, strict=True)
    ]
