"""The trainer: K trials of one signature trained as the rows of one matrix."""
