"""The pages of the console, one file for each; each reads what was asked, calls ``ops``, and names a template."""
