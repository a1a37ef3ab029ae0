"""Tuning to one cluster: what its own record says about rules, constants and the learned index."""
