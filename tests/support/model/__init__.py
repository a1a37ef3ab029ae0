"""Random clusters and slow, obvious oracles that the tests of the scheduling core rest on.

Nothing here shares code with what it checks: :mod:`~tests.support.model.oracles` says in plain
loops what
the core computes over arrays, :mod:`~tests.support.model.strategies` draws the clusters to compare
on.

:mod:`~tests.support.model.machine` lets anything happen to a cluster, one step after another, and
asks after
every decision whether :mod:`~tests.support.model.invariants` hold of a truth kept in plain
dictionaries.
"""
