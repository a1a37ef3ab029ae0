"""A testbed: control planes, fakes of Kubernetes, simulated clusters, a reference model, observers.

Tests, tools and benchmarks import it; it imports none of them.
"""
