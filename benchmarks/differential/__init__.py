"""Differential test: the simulator against the real control plane, job by job.

Both run :func:`bireme.core.cycle.run_cycle`; everything around it is written twice. A seed makes a
small :mod:`scenario <differential.scenarios>`: nodes, queues and TrainingJobs as manifests, each
with its moment and its run time. The cluster gets the manifests, the simulator the trace that the
operator's own readers make of them (:mod:`benchmarks.differential.simulations`). What the API
server's history
and the simulator's record say happened (:mod:`benchmarks.differential.course`) is compared: the
same starts in
the same order on the same nodes, the same gangs stopped and resized, ties apart
(:mod:`benchmarks.differential.course`).

    python -m benchmarks.differential --seeds 0:50
"""
