"""Writes reference pages from what the programs themselves read: models, settings, values.

A page that repeats a default by hand is wrong one day. These are tables made from the CRDs'
schemas, the settings' dataclasses and the comments of ``values.yaml``; ``make reference`` writes
them and ``make check`` compares.
"""
