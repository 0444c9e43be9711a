"""Products whose sums stay in registers: tiles and rows, whole, cut short, over windows."""
