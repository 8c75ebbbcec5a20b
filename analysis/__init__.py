"""Analysis: from the Store to tidy frames, one choice per cell, tables, plots and a report."""
