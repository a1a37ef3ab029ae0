"""Pod Security admission: new pods keep the level that a label of their namespace demands.

Source: ``k8s.io/pod-security-admission``, the levels of its latest version. The labels of ``audit``
have no effect, those of a version count as ``latest``. Pods that exist when a label comes are not
looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Faults, Object, forbidden, invalid
from bireme_lab.embedded.api.store import Store

_PREFIX: Final = "pod-security.kubernetes.io/"
LEVELS: Final = ("privileged", "baseline", "restricted")
_WORKLOADS: Final = (kinds.JOBS, kinds.STATEFUL_SETS, kinds.REPLICA_SETS, kinds.DEPLOYMENTS)
_CAPABILITIES: Final = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
_SYSCTLS: Final = frozenset(
    (
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
        *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"),
        *("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
        *("net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
    )
)
_SELINUX_TYPES: Final = (
    *("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
)
_VOLUMES: Final = frozenset(
    (
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    )
)


def security_admission(store: Store, warn: Callable[[str], None]) -> Callable[[Attempt], None]:
    """Return the validator that keeps new pods to the level of their namespace."""

    def admit(attempt: Attempt) -> None:
        if attempt.obj is None or attempt.subresource:
            return
        if attempt.resource.path == kinds.NAMESPACES:
            _check_levels(attempt, attempt.obj)
            return
        spec = _pod_spec(attempt.resource.path, attempt.obj)
        if spec is None or attempt.operation != "CREATE":
            return
        namespace = store.get(kinds.NAMESPACES, ("", attempt.key[0])) or {}
        labels = (namespace.get("metadata") or {}).get("labels") or {}
        obstacle, advice = (
            _violations(labels.get(_PREFIX + part, LEVELS[0]), spec) for part in ("enforce", "warn")
        )
        if obstacle and attempt.resource.path == kinds.PODS:
            subject = attempt.resource.subject(attempt.key[1])
            raise forbidden(subject, f"violates PodSecurity {obstacle}")
        if advice:
            warn(f"would violate PodSecurity {advice}")

    return admit


def _check_levels(attempt: Attempt, namespace: Object) -> None:
    labels, faults = namespace["metadata"].get("labels") or {}, Faults()
    for part in ("enforce", "audit", "warn"):
        level = labels.get(_PREFIX + part)
        if level is not None and level not in LEVELS:
            text = f"must be one of {', '.join(LEVELS)}"
            faults.invalid(f"metadata.labels[{_PREFIX}{part}]", level, text)
    if faults.causes:
        raise invalid(attempt.resource.subject(attempt.key[1]), faults.causes)


def _pod_spec(path: str, obj: Object) -> Object | None:
    """Return the spec of a pod, or of the pods of a workload; None for other objects."""
    if path == kinds.PODS:
        pod: Object = obj["spec"]
        return pod
    if path in _WORKLOADS:
        template: Object | None = (obj["spec"].get("template") or {}).get("spec")
        return template
    return None


def _violations(level: str, spec: Object) -> str:
    """Return the level and all that a pod violates of it; empty for nothing."""
    if level not in LEVELS[1:]:
        return ""
    checks = _BASELINE if level == "baseline" else (*_BASELINE_OF_BOTH, *_RESTRICTED)
    faults = [f"{name} ({details})" for name, details in _faults(checks, spec)]
    return f'"{level}:latest": {", ".join(faults)}' if faults else ""


def _faults(checks: Sequence[Any], spec: Object) -> Iterator[tuple[str, str]]:
    for name, check in checks:
        if details := list(check(spec)):
            yield name, "; ".join(details)


# --- parts of a spec ------------------------------------------------------------------------------


def _containers(spec: Object) -> list[Object]:
    groups = ("initContainers", "containers", "ephemeralContainers")
    return [item for group in groups for item in spec.get(group) or ()]


def _context(part: Object) -> Object:
    context: Object = part.get("securityContext") or {}
    return context


def _quotes(names: Sequence[Any]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _name(containers: Sequence[Object], noun: str = "container") -> str:
    return f"{noun}{'s' * (len(containers) > 1)} {_quotes([item['name'] for item in containers])}"


def _bad(spec: Object, is_bad: Callable[[Object], object]) -> list[Object]:
    return [item for item in _containers(spec) if is_bad(item)]


def _setters(spec: Object, is_bad: Callable[[Object], object]) -> str:
    """Return the pod, containers or both whose security context is bad; empty for none."""
    containers = _bad(spec, is_bad)
    parts = [*(["pod"] if is_bad(spec) else ()), *([_name(containers)] if containers else ())]
    return " and ".join(parts)


def _must_not_set(spec: Object, field: str, values: Sequence[str], name: str = "") -> Iterator[str]:
    """Yield who sets a text of a security context to none of ``values``; ``name`` is its name."""

    def is_bad(part: Object) -> bool:
        value = _value(part, field)
        return value is not None and value not in values

    if setters := _setters(spec, is_bad):
        parts = filter(is_bad, (spec, *_containers(spec)))
        texts = _quotes(sorted({str(_value(part, field)) for part in parts}))
        yield f"{setters} must not set {name or f'securityContext.{field}'} to {texts}"


def _value(part: Object, field: str) -> Any:
    value: Any = _context(part)
    for name in field.split("."):
        value = (value or {}).get(name)
    return value


# --- baseline -------------------------------------------------------------------------------------


def _app_armor(spec: Object) -> Iterator[str]:
    values = ("RuntimeDefault", "Localhost")
    yield from _must_not_set(spec, "appArmorProfile.type", values, "AppArmor profile type")


def _capabilities(spec: Object) -> Iterator[str]:
    yield from _extra_capabilities(spec, _CAPABILITIES)


def _extra_capabilities(spec: Object, allowed: frozenset[str]) -> Iterator[str]:
    def extra(container: Object) -> set[str]:
        return set(_value(container, "capabilities.add") or ()) - allowed

    if bad := _bad(spec, extra):
        names = _quotes(sorted({name for item in bad for name in extra(item)}))
        yield f"{_name(bad)} must not include {names} in securityContext.capabilities.add"


def _host_namespaces(spec: Object) -> Iterator[str]:
    fields = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if fields:
        yield ", ".join(f"{name}=true" for name in fields)


def _host_paths(spec: Object) -> Iterator[str]:
    if volumes := [item for item in spec.get("volumes") or () if item.get("hostPath")]:
        yield _name(volumes, "volume")


def _host_ports(spec: Object) -> Iterator[str]:
    def ports(container: Object) -> list[int]:
        return [p["hostPort"] for p in container.get("ports") or () if p.get("hostPort")]

    if bad := _bad(spec, ports):
        numbers = sorted({number for item in bad for number in ports(item)}, key=str)
        uses = "uses" if len(bad) == 1 else "use"
        listed = ", ".join(map(str, numbers))
        yield f"{_name(bad)} {uses} hostPort{'s' * (len(numbers) > 1)} {listed}"


def _probe_hosts(spec: Object) -> Iterator[str]:
    def hosts(container: Object) -> list[str]:
        hooks = container.get("lifecycle") or {}
        handlers = [
            *(
                container.get(probe)
                for probe in ("livenessProbe", "readinessProbe", "startupProbe")
            ),
            *(hooks.get(hook) for hook in ("postStart", "preStop")),
        ]
        return [
            host
            for handler in handlers
            for action in ("httpGet", "tcpSocket")
            if (host := ((handler or {}).get(action) or {}).get("host"))
        ]

    if bad := _bad(spec, hosts):
        names = sorted({host for item in bad for host in hosts(item)})
        uses = "uses" if len(bad) == 1 else "use"
        plural = "s" * (len(names) > 1)
        yield f"{_name(bad)} {uses} probe or lifecycle host{plural} {_quotes(names)}"


def _host_processes(spec: Object) -> Iterator[str]:
    if setters := _setters(spec, lambda part: _value(part, "windowsOptions.hostProcess")):
        yield f"{setters} must not set securityContext.windowsOptions.hostProcess=true"


def _privileges(spec: Object) -> Iterator[str]:
    if bad := _bad(spec, lambda item: _context(item).get("privileged")):
        yield f"{_name(bad)} must not set securityContext.privileged=true"


def _proc_mount(spec: Object) -> Iterator[str]:
    yield from _must_not_set(spec, "procMount", ("Default",))


def _seccomp_profiles(spec: Object) -> Iterator[str]:
    yield from _must_not_set(spec, "seccompProfile.type", ("RuntimeDefault", "Localhost"))


def _selinux(spec: Object) -> Iterator[str]:
    def is_bad_type(part: Object) -> bool:
        return (_value(part, "seLinuxOptions.type") or "") not in _SELINUX_TYPES

    def names_identity(part: Object) -> bool:
        return any(_value(part, f"seLinuxOptions.{field}") for field in ("user", "role"))

    setters = _setters(spec, lambda part: is_bad_type(part) or names_identity(part))
    if not setters:
        return
    parts = (spec, *_containers(spec))
    types = sorted({_value(part, "seLinuxOptions.type") for part in filter(is_bad_type, parts)})
    faults = [f"type{'s' * (len(types) > 1)} {_quotes(types)}"] if types else []
    faults += [
        f"{field} may not be set"
        for field in ("user", "role")
        if any(_value(part, f"seLinuxOptions.{field}") for part in parts)
    ]
    yield f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(faults)}"


def _sysctls(spec: Object) -> Iterator[str]:
    names = [item["name"] for item in _context(spec).get("sysctls") or ()]
    if bad := [name for name in names if name not in _SYSCTLS]:
        yield ", ".join(bad)


# --- restricted -----------------------------------------------------------------------------------


def _escalation(spec: Object) -> Iterator[str]:
    if bad := _bad(spec, lambda item: _context(item).get("allowPrivilegeEscalation") is not False):
        yield f"{_name(bad)} must set securityContext.allowPrivilegeEscalation=false"


def _few_capabilities(spec: Object) -> Iterator[str]:
    def keeps(container: Object) -> bool:
        return "ALL" not in (_value(container, "capabilities.drop") or ())

    if bad := _bad(spec, keeps):
        yield f'{_name(bad)} must set securityContext.capabilities.drop=["ALL"]'
    yield from _extra_capabilities(spec, frozenset({"NET_BIND_SERVICE"}))


def _volumes(spec: Object) -> Iterator[str]:
    kind_by_name = {
        item["name"]: kind
        for item in spec.get("volumes") or ()
        for kind in item.keys() - {"name"} - _VOLUMES
    }
    if kind_by_name:
        types = sorted(set(kind_by_name.values()))
        names = _name([{"name": name} for name in kind_by_name], "volume")
        uses = "use" if len(kind_by_name) > 1 else "uses"
        shown = f"type{'s' * (len(types) > 1)} {_quotes(types)}"
        yield f"{names} {uses} restricted volume {shown}"


def _non_root(spec: Object) -> Iterator[str]:
    of_pod = _context(spec).get("runAsNonRoot")
    if of_pod is False:
        yield "pod must not set securityContext.runAsNonRoot=false"
    if bad := _bad(spec, lambda item: _context(item).get("runAsNonRoot") is False):
        yield f"{_name(bad)} must not set securityContext.runAsNonRoot=false"
        return
    if of_pod is None and (
        unset := _bad(spec, lambda item: _context(item).get("runAsNonRoot") is None)
    ):
        yield f"pod or {_name(unset)} must set securityContext.runAsNonRoot=true"


def _root_user(spec: Object) -> Iterator[str]:
    if setters := _setters(spec, lambda part: _context(part).get("runAsUser") == 0):
        yield f"{setters} must not set runAsUser=0"


def _seccomp(spec: Object) -> Iterator[str]:
    explicit = list(_seccomp_profiles(spec))
    yield from explicit
    if explicit or _context(spec).get("seccompProfile"):
        return
    if unset := _bad(spec, lambda item: not _context(item).get("seccompProfile")):
        yield (
            f"pod or {_name(unset)} must set securityContext.seccompProfile.type to "
            '"RuntimeDefault" or "Localhost"'
        )


_BASELINE: Final = (
    ("forbidden AppArmor profile", _app_armor),
    ("non-default capabilities", _capabilities),
    ("host namespaces", _host_namespaces),
    ("hostPath volumes", _host_paths),
    ("hostPort", _host_ports),
    ("probe or lifecycle host", _probe_hosts),
    ("privileged", _privileges),
    ("procMount", _proc_mount),
    ("seLinuxOptions", _selinux),
    ("seccompProfile", _seccomp_profiles),
    ("forbidden sysctls", _sysctls),
    ("hostProcess", _host_processes),
)
_BASELINE_OF_BOTH: Final = tuple(
    item for item in _BASELINE if item[1] not in (_capabilities, _host_paths, _seccomp_profiles)
)
"""Those that no check of the level restricted replaces."""
_RESTRICTED: Final = (
    ("allowPrivilegeEscalation != false", _escalation),
    ("unrestricted capabilities", _few_capabilities),
    ("restricted volume types", _volumes),
    ("runAsNonRoot != true", _non_root),
    ("runAsUser=0", _root_user),
    ("seccompProfile", _seccomp),
)
