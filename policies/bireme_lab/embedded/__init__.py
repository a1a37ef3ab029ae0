"""A Kubernetes cluster in one process: API server, scheduler, kubelets and controllers."""
