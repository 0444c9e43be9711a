"""The verbs `promote` and `pack`: copy what a loop reads or writes to a faster memory."""
