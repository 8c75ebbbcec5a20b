"""A stack of K trials: its matrix, its passes under vmap, and what is watched of its steps."""
