"""The container images, built on this machine without Docker or a registry: docs/images.md."""

from tools.images.archives import Images, base, build, obstacle

__all__ = ["Images", "base", "build", "obstacle"]
