"""How a release is made, and rehearsed on this machine: docs/releases.md."""
