"""Rewrite sums and maxima: split, factored, accumulated elsewhere, online."""
