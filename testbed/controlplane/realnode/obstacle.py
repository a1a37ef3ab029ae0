"""Reasons why a machine cannot have a real node, found without touching anything."""

import os
import re
import sys
from pathlib import Path
from typing import Final

from testbed.controlplane import binaries
from testbed.controlplane.binaries import NODE, cache_root, is_built
from testbed.controlplane.realnode.cgroups import CGROUPS
from testbed.controlplane.realnode.sandbox import COVERED

# What a running node needs: links, kube-proxy's rules, certificates, unshare and nsenter.
PACKAGES: Final = ("iproute2", "iptables", "openssl", "util-linux")

CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
BRIDGE_FILTER: Final = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def obstacle() -> str | None:
    """Return why this machine cannot have a real node; None when it can."""
    if sys.platform != "linux":
        return f"a real node needs Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "a real node needs root"
    if lacking := [name for name, bit in CAPABILITIES.items() if not effective() >> bit & 1]:
        return f"a real node needs {' and '.join(lacking)}: use a machine or a privileged container"
    if not os.access(CGROUPS, os.W_OK) or not any(CGROUPS.iterdir()):
        return f"a real node needs control groups: mount {CGROUPS} writable"
    if not BRIDGE_FILTER.exists():
        return f"there is no {BRIDGE_FILTER}: run `modprobe br_netfilter`"
    for folder in COVERED:
        if cache_root().is_relative_to(folder):
            return f"BIREME_CACHE is below {folder}, which a node has of its own: use another"
    return binaries.obstacle(*PACKAGES, *(() if is_built(NODE) else NODE.packages))


def effective() -> int:
    """Return the effective capabilities of this process as a bit mask."""
    found = re.search(r"(?m)^CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    return int(found[1], base=16) if found else 0
