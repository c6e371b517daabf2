"""The parts of pages that are live: what they show, and the same as HTML for those who listen."""
