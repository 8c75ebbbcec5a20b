"""The Store: durable records of trials and sweeps, and who may write them."""
