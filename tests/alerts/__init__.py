"""Alerts: rules, how they fire and end, who is told, and what Prometheus makes of them."""
