"""Kubernetes' own kinds: defaults, validation and admission of the API server."""
