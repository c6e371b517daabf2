"""Rebuilds a projection's index from its source, while events go on."""
