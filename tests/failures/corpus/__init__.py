"""Failures of known causes: small applications that really call the libraries people use, against servers of their own
on this machine. The rules were made with others, which are gone."""
