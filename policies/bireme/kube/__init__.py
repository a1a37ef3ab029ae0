"""The edge to Kubernetes: resource models, manifests to core types and back, client, reflector."""
