"""Bireme on kind: ``make kind-up``, and a node image of our own for its tests: docs/kind.md."""
