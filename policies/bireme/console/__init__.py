"""What people ask a cluster: why a job waits, who is in line, what a drain would move.

Read with the caller's own credentials, from a kubeconfig or inside a pod; the answers come from
what the operator has written on the objects, or from its own scheduling cycle on a copy.
"""
