"""Evidence by simulation: the tables in ``docs/results/simulations``, each with its command.

Equal code and data give equal tables. Every run is kept under ``.run/evidence``, so that one that
was cut off goes on; ``--fresh`` forgets them, which is due when the simulator or a policy changes.
"""
