"""Weights & Biases completed from the Store's records."""
