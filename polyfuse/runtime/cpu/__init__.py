"""Run programs on the CPU: machine code, its entry, threads."""
