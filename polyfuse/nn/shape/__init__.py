"""Views and look-ups: narrow, concat, transpose, reshape, pad, unfold, embedding."""
