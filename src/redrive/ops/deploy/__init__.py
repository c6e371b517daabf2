"""Makes units for those who start processes, from the configuration: supervisord, systemd, Kubernetes, Compose."""
