"""Scripts of this checkout: what is generated from the code."""
