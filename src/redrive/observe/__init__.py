"""Shows a worker to the outside: events, logs, health."""
