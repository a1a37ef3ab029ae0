"""Two hours on a real control plane with faults: does anything grow that should not?

Tenants come and go on fake nodes (``load``), faults strike one after the other (``faults``), and
every ten seconds the programs and what the cluster holds are measured (``samples``). A line through
one life of each program says what it grows by in a day (``slopes``), and the history of the cluster
is judged as in every cluster test.
"""
