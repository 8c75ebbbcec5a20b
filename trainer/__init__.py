"""The trainer: K trials of one signature trained as the rows of one matrix (see `trainer.stack`)."""

__version__ = "0.1.0"
