"""The table of examples for the chart's policies and the CRDs' rules.

One test judges it by :mod:`bireme_lab.embedded.cel`, and one of the tier ``cluster`` puts it to the
real server.
"""
