"""Which stack runs when: Ray Tune, its processes, and the progress that is shown."""
