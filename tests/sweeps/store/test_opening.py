"""From the address of a Store to its files."""

from __future__ import annotations

import pytest

from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store


def test_what_is_no_store_is_named() -> None:
    for root in ("memory://store", "nothing://at/all", "", "s3://", "zip::s3://a/b"):
        with pytest.raises(StoreError, match="store"):
            Store(root)
