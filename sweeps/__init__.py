"""Sweeps: from a spec file to trials, stacks, a Ray Tune run and durable records."""
