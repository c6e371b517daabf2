"""Applications to look at, run and copy from."""
