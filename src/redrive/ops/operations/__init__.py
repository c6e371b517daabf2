"""Bulk operations: what they are about, their preview, their beginning, how they are carried out, what came of them."""
