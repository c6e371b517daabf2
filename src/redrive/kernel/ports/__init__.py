"""The port: what a store must be able to do, by who asks. Workers and producers ask a ``WorkerStore``, operators and
faces a ``ReadStore``; both together are a ``Store``. What only stores that speak SQL can do is apart, in ``Sql``.

A store is written from these files and from ``redrive_kit.conformance``, group by group. What must not differ between
stores is not theirs to decide: where a move leads (``kernel/machine.py``), which audit row a control leaves
(``Hold.audit`` and its like), who is silent (``liveness.find_silent``), which names and payloads are refused
(``kernel/task.py``, ``kernel/payload.py``), and the words of refusals (``stores/refusals.py``)."""
