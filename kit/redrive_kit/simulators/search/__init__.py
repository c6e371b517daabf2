"""A search server of our own, over HTTP: what the sinks of Elasticsearch and OpenSearch use of them, and their trouble.

For tests and labs on machines without a real one. Where the two were found to differ, this one was mended.
"""
