"""Prints triggers that project a table: each insert, update and delete becomes an event of the same transaction."""
