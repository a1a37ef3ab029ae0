"""Training of learned policies: algorithms, environments, recipes; the only package with torch."""
