"""From a schedule tree to loop trees: isl generates the loops, marks carry what isl does not know."""
