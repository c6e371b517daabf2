"""Runs tasks: claims many, runs many, settles many."""
