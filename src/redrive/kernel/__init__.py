"""Values and pure functions: no I/O, no clock, no logging."""
