"""``make demo``: two dozen training jobs on a real control plane, shown live and judged afterwards.

    python -m tools.demo run     # the whole demo
    python -m tools.demo up      # the same cluster, without jobs, until ``down``
    python -m tools.demo down

Jobs go in as YAML through kubectl; what is shown and judged comes from the API server through the
recorder of :mod:`tests.support.history`, never from Bireme's own memory.
"""
