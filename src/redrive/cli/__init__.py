"""The command ``redrive``: one file per group of commands, each a few lines over ``ops`` and ``app``."""
