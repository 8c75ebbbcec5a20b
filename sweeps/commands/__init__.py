"""The commands around a sweep: plan, launch, submit, train, status, stop, logs, sync."""
