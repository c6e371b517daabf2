"""The commands: one file for each, named as it is called."""
