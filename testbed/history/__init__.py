"""The API server's own history, recorded and judged by code that shares nothing with Bireme.

Use it so:

    with Recorder(cluster.kubeconfig, folder / "history.jsonl") as recorder:
        ...
        recorder.settle()                  # everything up to now is in
    violations = check(recorder.records(), grace_seconds=10, settled=True)
"""
