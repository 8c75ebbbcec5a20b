"""Tasks, models, optimizers and schedulers by name: the built-in ones and the user's own."""
