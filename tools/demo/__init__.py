"""``make demo``: two dozen training jobs on a real control plane, shown live and judged afterwards.

Jobs go in as YAML through kubectl; what is shown and judged comes from the API server through the
recorder of :mod:`testbed.history`, never from Bireme's own memory.
"""
