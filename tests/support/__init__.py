"""Shared by tests: fakes of Kubernetes, simulated clusters, a reference model, observers."""
