"""Run programs on a GPU: cubins, the driver, callers' device arrays."""
