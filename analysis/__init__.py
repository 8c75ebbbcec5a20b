"""Analysis: from the Store or from W&B to tidy frames, one choice per cell, tables, plots, comparison and report."""
