"""Plan the memory of temporaries and results."""
