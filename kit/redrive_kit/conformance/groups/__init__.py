"""The suites by what they need of a store, to be run one after the other while one is written."""
