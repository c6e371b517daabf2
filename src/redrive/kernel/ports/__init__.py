"""The port: what a store must be able to do. Its verbs are in ``redrive.kernel.store``, its reads here by subject."""
