"""Those whom redrive speaks to, as real HTTP servers: a provider of remote jobs, and a search server."""
