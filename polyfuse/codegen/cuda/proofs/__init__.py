"""Conditions, proven by isl, under which loops become one device operation."""
