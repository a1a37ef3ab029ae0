"""Training of learned policies: algorithms, environments, recipes; only this package uses torch."""
