"""Sweeps that many tests of the analysis read and none changes: each is made once."""

from __future__ import annotations

from tests.support.drawn import drawn as drawn
from tests.support.drawn import optimizers as optimizers
from tests.support.drawn import pulled as pulled
from tests.support.made_searches import searched as searched
from tests.support.theory import lines as lines
from tests.support.theory import small as small
