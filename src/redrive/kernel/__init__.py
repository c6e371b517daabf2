"""The pure heart: values and functions without I/O, clock or logging."""
