"""Which fields and options a config's components read."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.trainer.errors import ConfigError
from tests.support.lab import lab as lab
from tests.support.lab import own


def test_an_option_of_the_wrong_name_or_type_is_named(lab: Path) -> None:
    with pytest.raises(ConfigError, match=r"'my_lab.nets:convnet' has no option 'width'; its options: channels"):
        own(model="my_lab.nets:convnet", model_options={"width": 3})
    with pytest.raises(ConfigError, match=r"model_options.channels: .*\(got 'many'\)"):
        own(model="my_lab.nets:convnet", model_options={"channels": "many"})
