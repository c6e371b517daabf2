"""``./dev bench``: how fast redrive is, beside its peers and its floor. Start reading in ``run.py``."""
