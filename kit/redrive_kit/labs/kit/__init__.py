"""What experiments share: processes that can be killed, sinks that can be stopped, facts, and the record."""
