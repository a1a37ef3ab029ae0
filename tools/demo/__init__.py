"""``make demo``: two dozen training jobs on a real control plane, shown live and judged afterwards.

    PYTHONPATH=tools python -m demo run     # the whole demo
    PYTHONPATH=tools python -m demo up      # the same cluster, without jobs, until ``down``
    PYTHONPATH=tools python -m demo down

Jobs go in as YAML through kubectl; what is shown and judged comes from the API server through the
recorder of :mod:`history`, never from Bireme's own memory.
"""
