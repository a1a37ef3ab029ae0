"""The container images, built on this machine without Docker or a registry: docs/images.md."""

from images.archives import Images, base, build, obstacle
from images.tool import ImageError

__all__ = ["ImageError", "Images", "base", "build", "obstacle"]
