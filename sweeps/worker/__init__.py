"""One stack in one process: its claims, heartbeats, saves and signals."""
