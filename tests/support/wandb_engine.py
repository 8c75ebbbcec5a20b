"""What W&B's published engine makes of entries and curves, run in its own environment: `python wandb_engine.py`.

Reads one JSON object from stdin and prints one: `draws` (`count` of each of these entries, seeded), `quantiles` (the
values of each of `entries` at `at`), `grids`, and `stopped` (for each hyperband case, whether the first curve stops).
"""

import json
import random
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import numpy  # noqa: E402
from sweeps.params import HyperParameter  # noqa: E402, TID251

from sweeps import RunState, SweepRun, next_runs, stop_runs  # noqa: E402, TID251


def plain(value: Any) -> Any:
    """A number of NumPy's as Python's."""
    return value.item() if hasattr(value, "item") else value


def quantiles(parameter: HyperParameter, at: list[float]) -> list[Any]:
    """The values at `at`: all at once, as a call takes scipy long, except where the engine wants them one by one."""
    if parameter.type in (HyperParameter.CONSTANT, HyperParameter.CATEGORICAL_PROB):
        return [parameter.ppf(u) for u in at]
    return [plain(value) for value in parameter.ppf(numpy.array(at))]


def grid(entry: dict[str, Any]) -> list[Any]:
    """The values of a grid over one parameter, in order."""
    config = {"method": "grid", "parameters": {"x": entry}}
    runs = next_runs(config, [], n=1000)
    return [plain(run.config["x"]["value"]) for run in runs if run is not None]


def is_stopped(case: dict[str, Any]) -> bool:
    """Whether the run with the first of the curves, which has come to its end, is stopped; the others have ended."""
    runs = [
        SweepRun(
            name=str(index),
            state=RunState.finished if index else RunState.running,
            history=[{"loss": value} for value in curve],
        )
        for index, curve in enumerate(case["curves"])
    ]
    config = {
        "method": "random",
        "metric": {"name": "loss", "goal": case["goal"]},
        "early_terminate": case["early_terminate"],
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
    }
    return bool(stop_runs(config, runs))


def main() -> None:
    asked = json.load(sys.stdin)
    random.seed(asked["seed"])
    parameters = {name: HyperParameter(name, entry) for name, entry in asked["entries"].items()}
    answer = {
        "draws": {name: [plain(parameters[name].sample()) for _ in range(asked["count"])] for name in asked["draws"]},
        "quantiles": {name: quantiles(one, asked["at"]) for name, one in parameters.items()},
        "grids": {name: grid(entry) for name, entry in asked["grids"].items()},
        "stopped": [is_stopped(case) for case in asked["hyperband"]],
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
