"""The port: what a store must be able to do. Its verbs are in ``store``, its reads beside it by subject."""
