"""Evidence by simulation: the tables in ``docs/results/simulations``, each with its command.

``python -m benchmarks.simulations [names...]``. Simulations, not timings: they need no quiet
machine, and equal code and data give equal tables. Every single run is kept as a file under
``.run/evidence``, by table, contender and window, so that a run that was cut off goes on where it
stopped; ``--fresh`` forgets them, which is due whenever the simulator or a policy has changed.
"""
