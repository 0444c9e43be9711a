"""Models of torch through `torch.compile(backend="polyfuse")`, as a table."""
