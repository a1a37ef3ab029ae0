"""Training of learned policies: algorithms, environments, recipes; all of torch is here."""
