"""Environments with a policy that is known to be right, to see whether algorithms learn."""
