"""The API server's own history, recorded and judged by code that shares nothing with Bireme.

A :class:`~tests.support.history.recorder.Recorder` has watches of its own and keeps every revision
of nodes,
pods, TrainingJobs, PodGroups and Queues. :func:`~tests.support.history.observer.check` replays them
in the order
etcd made them and returns every broken promise; it is pure, so a recorded file can be judged again.

    with Recorder(cluster.kubeconfig, folder / "history.jsonl") as recorder:
        ...
        recorder.settle()                  # everything up to now is in
    violations = check(recorder.records(), grace_seconds=10, settled=True)
    assert not violations, "\\n".join(map(str, violations))

``history.records.read(path)`` gives the records of a file. ``history.check.INVARIANTS`` names
every promise that is checked.
"""
