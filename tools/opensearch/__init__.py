"""A real OpenSearch on this machine, for the tests of the search sinks and for the labs."""
