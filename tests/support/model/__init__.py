"""Reference model of the scheduling core: a second, slow and obvious statement of its rules.

:mod:`~tests.support.model.cluster` keeps a cluster in plain dictionaries,
:mod:`~tests.support.model.invariants` says what must hold of every decision on it, and
:mod:`~tests.support.model.machine` lets anything happen to it. :mod:`~tests.support.model.oracles`
states in plain loops what the core computes over arrays. None of it shares code with the core.
"""
