"""Tuning to one cluster: rules, constants and the learned index, fitted to its own record."""
