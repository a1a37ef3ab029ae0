"""The planner beside kube-scheduler's own filter plugins, on random clusters.

:mod:`drawing` makes clusters and pods of a seed, :mod:`judge` asks the plugins, :mod:`planner` asks
what Bireme would plan, :mod:`comparison` says where they differ.
"""
