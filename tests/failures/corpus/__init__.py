"""Failures of known causes: small applications that really call the libraries people use, against servers of their own
on this machine. ``causes`` was there while the algorithm was tuned, ``heldout`` was kept aside, as was half of
``untuned``."""
