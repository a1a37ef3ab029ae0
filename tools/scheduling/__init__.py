"""Random clusters and slow, obvious oracles that the tests of the scheduling core rest on.

Nothing here shares code with what it checks: :mod:`~scheduling.oracles` says in plain loops what
the core computes over arrays, :mod:`~scheduling.strategies` draws the clusters to compare on.
"""
