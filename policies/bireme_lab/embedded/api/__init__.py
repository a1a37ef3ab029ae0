"""The API server of the embedded cluster: kinds, storage, verbs and messages as Kubernetes 1.37."""
