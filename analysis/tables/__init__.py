"""What is chosen in every cell, how sure it is, and the tables of it."""
