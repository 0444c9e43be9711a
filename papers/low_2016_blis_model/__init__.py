"""Low, Igual, Smith and Quintana-Ortí (2016): blocks of a matrix product from the geometry of caches."""
