"""Every figure: what is drawn, how it looks, and its files."""
