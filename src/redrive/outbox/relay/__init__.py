"""The relay: takes claimed events to a sink, and gives each its own outcome."""
