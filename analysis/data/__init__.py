"""Runs and histories from the Store or from W&B, as tidy frames."""
