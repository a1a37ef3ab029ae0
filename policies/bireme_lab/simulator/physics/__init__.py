"""Speeds of jobs in a simulation, and disturbances."""
