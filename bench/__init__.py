"""Throughput of this checkout."""
