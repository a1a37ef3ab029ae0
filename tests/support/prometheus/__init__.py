"""A real Prometheus on loopback, with a history of its own: for tests of what asks one."""
