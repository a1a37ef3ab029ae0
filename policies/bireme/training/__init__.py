"""How policies are learned: envs, algorithms, recipes; the only package that knows torch."""
