"""Measurements, simulations and experiments; each writes the pages below docs/results."""
