"""The HTML report, and the W&B workspace view of a sweep."""
