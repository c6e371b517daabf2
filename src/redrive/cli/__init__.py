"""The command ``redrive``: one file per command, each a few lines over ``ops`` and ``app``."""
