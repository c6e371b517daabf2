"""Alerts: evaluated by one worker of the fleet at a time, told to people, silenced by operators."""
