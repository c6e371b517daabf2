"""The worker: claim many, run many, settle many."""
