"""Publishing from ORMs: what a flush or a save changes becomes events, in the same transaction."""
