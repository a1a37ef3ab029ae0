"""How unkind the surroundings of one simulated cluster are, drawn once for each seed."""

from dataclasses import dataclass, fields
from random import Random
from typing import Self

_SHARE = 0.25
"""Share of clusters with each unkindness: most have one or two, some have none."""


@dataclass(frozen=True, slots=True)
class World:
    """Every field is one unkindness; without arguments none is there."""

    has_long_jobs: bool = False
    """Some jobs run for minutes: part of a gang would be seen running for long."""

    kubelets_reject: bool = False
    """Kubelets do not admit pods for a while, and nodes that were away have rebooted."""
    images_hang: bool = False
    """Images take long the first time; some nodes cannot pull any, and one job never."""
    others_schedule: bool = False
    """Another scheduler takes planned room before it is bound, and preempts single pods."""
    nodes_are_tainted: bool = False
    """Taints come between plan and bind, or drive pods out, and go again; some jobs tolerate."""
    pods_are_gated: bool = False
    """Admission puts another controller's scheduling gate on pods, lifted soon or after long."""
    jobs_have_volumes: bool = False
    """Some jobs use volumes of one node, bound before or by their pods, or compete for one."""
    pods_have_rules: bool = False
    """Half of the jobs have affinity, anti-affinity or spread, and so have pods of others."""
    nodes_attach_few: bool = False
    """Where jobs have volumes: nodes attach one or two of a driver, which jobs and others share."""
    roles_are_bound: bool = False
    """Half of the jobs have a parameter server, and demand workers in its rack."""
    some_are_urgent: bool = False
    """Short jobs of a high class come one after another, and stop long ones of a low class."""
    some_are_alike: bool = False
    """Jobs that are alike in everything come one after another and wait for the same room."""
    ended_pods_vanish: bool = False
    """The garbage collector, a TTL or a user removes pods that have succeeded."""
    groups_are_applied_again: bool = False
    """PodGroups are deleted and created again while their pods run."""
    nodes_leave_slowly: bool = False
    """Nodes have a deletion timestamp and a finalizer for long, while their kubelets work."""

    admission_goes_wrong: bool = False
    """Webhooks are down, policies deny, and pods are altered so that nobody would bind them."""
    scheduler_is_silent: bool = False
    """kube-scheduler says nothing of one gang after another, and serves all others."""

    some_can_resume: bool = False
    """Half of the jobs and PodGroups say that they go on from a checkpoint after a stop."""
    nodes_are_maintained: bool = False
    """Administrators announce the maintenance of nodes, drain them then, or call it off."""
    gpus_differ: bool = False
    """Some nodes have faster GPUs, to which gangs that can resume move where nobody waits."""

    @classmethod
    def drawn(cls, chance: Random) -> Self:
        return cls(**{each.name: chance.random() < _SHARE for each in fields(cls)})
