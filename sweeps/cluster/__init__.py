"""Sweeps on a Ray cluster: submitted as a job, or driven from here or from its head."""
