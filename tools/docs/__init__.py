"""Generators of documentation: dashboards and metrics, references, the site."""
