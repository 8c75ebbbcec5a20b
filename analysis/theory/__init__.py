"""The convex problems beside the paper: curves of the runs, its bounds, which of them hold, in figures and words."""
