"""Failures of known causes: small applications that really call the libraries people use, against servers of their own
on this machine. ``causes`` was there while the rules were made; the others were not."""
