"""The loop tree, the form between schedule and source: its nodes and what can be asked of it."""
