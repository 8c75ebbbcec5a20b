"""The sweep spec: from YAML to trials, grids and searches."""
