"""What a user would pick instead, side by side with ours in one run: `python -m benchmarks.peers`."""
