"""Decide where a rewrite of sums pays: split, stored elsewhere, with loops renumbered, or half of them computed."""
