"""Convex tasks with known constants, and what the paper guarantees about them."""
