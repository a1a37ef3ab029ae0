"""The container images, built on this machine without Docker or a registry: docs/images.md."""
