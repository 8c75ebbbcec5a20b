"""Update rules of the rows: SGD, USAM, SAM and the adaptive ones."""
