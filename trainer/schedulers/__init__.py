"""Step sizes of the rows: constant, cosine and Polyak."""
