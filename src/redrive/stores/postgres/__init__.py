"""PostgreSQL 14 or newer. The verbs are SQL functions (see ``migrations/``); Python moves values in and out."""
