"""The port: what a store must be able to do, by who asks. Workers ask ``worker``, operators and faces ask ``reads``;
both together are a ``store``. What only stores that speak SQL can do is apart, in ``sql``."""
