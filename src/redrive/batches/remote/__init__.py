"""Remote batches: their items are jobs at a provider, started, polled to their end, and paid for if they succeed.

An item is a task and the end of a batch is a join, as of all batches. What is added here: rows that hold the items
until their turn comes (``item_task.py``), the provider (``item_handler.py``), and money (``commits.py``).
"""
