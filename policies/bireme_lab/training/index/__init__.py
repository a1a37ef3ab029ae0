"""Learned index: its training cases, network, evaluation and recipe."""
