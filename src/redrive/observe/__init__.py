"""What the outside sees of a worker: events, logs, health."""
