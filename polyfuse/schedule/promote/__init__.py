"""The verbs `promote` and `pack`: copies of what a loop reads or writes in a memory of its own."""
