"""Compares a projection's index with its source, and repairs what differs."""
