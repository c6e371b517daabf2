"""Providers, and how they are spoken to."""
