"""PostgreSQL 14 or newer. The verbs are SQL functions (see ``functions/``); Python moves values in and out."""
