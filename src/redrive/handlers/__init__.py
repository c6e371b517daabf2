"""Defines handlers: what an application declares, and what a handler gets to work with."""
