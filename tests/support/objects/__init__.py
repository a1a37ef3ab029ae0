"""Kubernetes objects for tests without a cluster: as the API server serves them, and as facts.

Everything here is made of real manifests that went through JSON and the wire types, so a test
sees what the operator would see and never a shortcut.
"""
