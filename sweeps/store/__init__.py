"""The Store: durable records of trials and sweeps, and which process may write them."""
