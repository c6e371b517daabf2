"""A provider for demonstrations, labs and tests: a real HTTP server whose jobs take time and fail, and whose trouble
can be chosen."""
