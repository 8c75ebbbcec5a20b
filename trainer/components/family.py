"""The SAM family, and step sizes after Polyak's, as the registry lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from polysweep.trainer.components.component import AHEAD, REQUIRED, Component
from polysweep.trainer.components.options import (
    ASAMOptions,
    DecSPSOptions,
    ESAMOptions,
    FSAMOptions,
    GSAMOptions,
    LookSAMOptions,
    MoMoOptions,
    Options,
)


def _relative(name: str, attribute: str, options: type[Options], statistics: str = "both", **rest: Any) -> Component:
    """A relative of SAM, of a family of its own; `statistics` is the default of `batchnorm_statistics`."""
    return Component(
        f"polysweep.trainer.optimizers.{attribute}",
        uses={"rho": REQUIRED, "rho_schedule": "constant", "batchnorm_statistics": statistics, "momentum": 0.0},
        options=options,
        family=name,
        rowwise_options=True,
        **rest,
    )


def _polyak_type(target: str, options: type[Options] = Options, fixes: tuple[str, ...] = (), **uses: Any) -> Component:
    """A step size after Polyak's, of losses above a lower bound."""
    return Component(
        f"polysweep.trainer.schedulers.{target}",
        uses={**uses, "lower_bound": 0.0},
        options=options,
        fixes=fixes,
        along_gradient=True,
    )


_REFUSALS: Final = "polysweep.trainer.optimizers.refusals"
FAMILY_OPTIMIZERS: Final[Mapping[str, Component]] = {
    "asam": _relative("asam", "family:ASAM", ASAMOptions),
    "gsam": _relative("gsam", "family:GSAM", GSAMOptions, schedulers=AHEAD),
    "f-sam": _relative("f-sam", "family:FriendlySAM", FSAMOptions),
    "looksam": _relative(
        "looksam", "family:LookSAM", LookSAMOptions, "first", schedulers=AHEAD, check=f"{_REFUSALS}:require_looks"
    ),
    "esam": _relative("esam", "esam:ESAM", ESAMOptions, check=f"{_REFUSALS}:require_samples"),
}
FAMILY_SCHEDULERS: Final[Mapping[str, Component]] = {
    "sps-plus": _polyak_type("polyak_family:SPSPlus"),
    "decsps": _polyak_type("polyak_family:DecSPS", DecSPSOptions, gamma_b=1.0),
    "momo": _polyak_type("momo:MoMo", MoMoOptions, fixes=("momentum",), lr=1.0),
    "ngn": _polyak_type("polyak_family:NGN", lr=REQUIRED),
}
