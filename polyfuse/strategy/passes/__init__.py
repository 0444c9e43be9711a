"""Passes over a whole plan: grouping, backtracking, regions, launches, remarks."""
