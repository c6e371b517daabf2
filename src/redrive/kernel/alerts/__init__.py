"""Alerts: the rules there are, what they are judged by, and how an alert begins, fires and ends."""
