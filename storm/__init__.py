"""Storms: real workers under a steady load while something breaks, and the books that must balance afterwards."""
