"""Kubernetes objects for tests without a cluster: as the API server serves them, and as facts.

Everything is made of manifests that went through JSON and the wire types, as in the operator.
"""
