"""The tests: units mirror the rooms, `system` runs the product from outside, `support` is what they share."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Ray sets it for a worker: bits of NumPy and torch depend on it
