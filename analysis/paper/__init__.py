"""The whole paper: its sweeps, its tables and figures from our runs, and one document of them."""
