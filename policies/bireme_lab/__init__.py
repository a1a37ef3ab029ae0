"""Simulation, training and trials of policies: what a cluster in service does not need."""
