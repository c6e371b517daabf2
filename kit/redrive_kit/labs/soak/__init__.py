"""The soak: a mixed load and faults for some minutes, with books that have to balance all the time."""
