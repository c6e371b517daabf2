"""A load generator: writes notes and their events, as an application would."""
