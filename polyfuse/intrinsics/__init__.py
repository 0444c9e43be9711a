"""Everything that emitted source imports from polyfuse, one module for each target."""
