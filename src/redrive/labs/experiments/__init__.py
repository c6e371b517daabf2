"""The six experiments, a file each."""
