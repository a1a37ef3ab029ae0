"""Learned index: the cases it learns from, its network, evaluation and recipe."""
