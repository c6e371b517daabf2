"""The SQLite store: one file, one writing thread, nothing to install."""
