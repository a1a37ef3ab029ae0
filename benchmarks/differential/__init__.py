"""The simulator against the real control plane, job by job: ``python -m benchmarks.differential``.

A seed makes a small scenario: nodes, queues and TrainingJobs as manifests, each with its moment and
run time. The cluster gets the manifests, the simulator the trace that the operator's own readers
make of them. Both must start, stop and resize the same gangs on the same nodes, in one order but
for ties.
"""
