"""Bireme's lab: simulation, training, contests and tuning of policies, and policies of research."""
