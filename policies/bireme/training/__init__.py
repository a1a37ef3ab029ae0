"""How policies are learned: worlds, algorithms, recipes; the only package that knows torch."""
