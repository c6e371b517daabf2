"""A provider over HTTP that is configured instead of written."""
