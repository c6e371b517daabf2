"""What several commands share: options, output, sessions, processes."""
