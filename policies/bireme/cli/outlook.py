"""The starts of all waiting gangs: as the leader foresees them, or by the cycle of a record.

The leader's outlook comes by :mod:`bireme.cli.leader`. With a record the scheduling cycle itself
continues from the last cycle (:mod:`bireme.core.outlook`).
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bireme.cli import leader
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError
from bireme.cli.gangs import GangLine, in_order, line_of
from bireme.cli.own_policies import as_set, making
from bireme.cli.recorded_cycle import last_cycle, policy_that_decided, waiting_lines
from bireme.core.cycle import run_cycle
from bireme.core.outlook import look_ahead
from bireme.core.play import Cut
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time, duration
from bireme.kube.conditions import cleaned
from bireme.replay.outlook_reply import PATH, VERSION, GangOutlook, OutlookReply, OutlookRequest
from bireme.replay.reader import RecordedCycle
from bireme.replay.what_if import Inquiry

_QUEUE_SECONDS: Final = 240.0
"""Maximum time in which the leader, by its defaults, answers others first."""
_CUTS: Final = {
    Cut.ALL_STARTED: "the forecast covers all gangs that can start",
    Cut.NOTHING_ENDS: "the remaining gangs cannot start even when all running gangs have ended",
    Cut.HORIZON: "the forecast ends after 30 days",
    Cut.CYCLES: "later starts are not forecast",
}


@dataclass(frozen=True, slots=True)
class QueueOutlook:
    """The waiting gangs in their order, with their starts.

    Attributes:
        now: The moment up to which they have waited, POSIX seconds.
        about: When and by which policy the starts were foreseen, as data.
        remark: The same in a sentence.
    """

    lines: Sequence[GangLine]
    now: float
    about: Json | None
    remark: str


# --- from the leader ----------------------------------------------------------------------------


async def read_leader(
    reader: ClusterReader,
    options: argparse.Namespace,
    otherwise: str,
    namespaces: Sequence[str] = (),
) -> OutlookReply:
    """Return the leader's reply about ``namespaces``, or about all that the caller may read.

    ``otherwise`` is the alternative if there is no leader to ask. Raises ConsoleError and
    UsageError as :func:`bireme.cli.leader.fetch`.
    """
    what = "read the outlook"
    request = leader.Request(PATH.lstrip("/"), what, otherwise, namespaces=namespaces)
    return _decode(await leader.fetch(reader, options, request))


async def ask_leader(
    reader: ClusterReader, options: argparse.Namespace, question: Inquiry, otherwise: str
) -> OutlookReply:
    """Return the leader's reply to ``question``, as :func:`read_leader`."""
    question = msgspec.structs.replace(question, namespace=question.namespace or reader.namespace)
    body = OutlookRequest(VERSION, question)
    request = leader.Request(PATH.lstrip("/"), "ask what if", otherwise, body)
    if options.request_timeout:  # it is meant for immediate answers
        request = replace(request, timeout_seconds=options.request_timeout + _QUEUE_SECONDS)
    return _decode(await leader.fetch(reader, options, request))


def _decode(text: bytes) -> OutlookReply:
    try:
        head: Json = msgspec.json.decode(text, type=dict)
        if (version := head.get("apiVersion")) not in (VERSION, None):
            raise ConsoleError(
                f"the answer has version {version!r}, and this bireme reads {VERSION}; use the "
                "bireme of the operator's version"
            )
        return msgspec.json.decode(text, type=OutlookReply)
    except msgspec.DecodeError as error:
        raise ConsoleError(
            f"the answer cannot be read: {error}; check --outlook-service"
        ) from error


def policy_of(name: str) -> str:
    """Return the name of a policy for people; that of the settings has none."""
    return cleaned(name) or "the policy of the settings"


async def of_leader(reader: ClusterReader, options: argparse.Namespace) -> QueueOutlook:
    """Return the queue as the leader sees it, in the namespace of ``options`` or in all."""
    is_one = options.namespace and not options.all_namespaces
    namespaces = [options.namespace] if is_one else []
    reply = await read_leader(reader, options, "name a record by --record", namespaces)
    lines = [_line(gang) for gang in reply.gangs]
    now = time.time()  # noqa: TID251  # a person asks now
    if reply.foresight is None:
        return QueueOutlook(lines, now, None, "no start is foreseen yet; try again in a minute")
    about: Json = msgspec.to_builtins(reply.foresight)
    made = f"at {reply.foresight.time}, {duration(reply.foresight.age_seconds)} ago"
    remark = _remark(lines, policy_of(reply.foresight.policy), made, reply.foresight.cut)
    return QueueOutlook(lines, now, about, remark)


def _line(gang: GangOutlook) -> GangLine:
    about = {
        "namespace": gang.namespace,
        "name": gang.name,
        "creationTimestamp": gang.arrived,
    }
    status = {
        "queue": gang.queue,
        "reason": gang.reason,
        "message": gang.message,
        "queuePosition": gang.position,
        "gpus": gang.gpus,
        "priority": {"score": gang.priority},
        "estimatedStart": msgspec.to_builtins(gang.estimated_start),
    }
    return line_of({"kind": gang.kind, "metadata": about, "status": status})


# --- from a record ------------------------------------------------------------------------------


def of_record(options: argparse.Namespace) -> QueueOutlook:
    """Return the queue of the last cycle of ``--record``, by its policy or by ``--policy``."""
    settings, cycle = last_cycle(options)
    snapshot = cycle.snapshot
    name, policy = _policy(options, settings, cycle)
    # With explanations: only then does the first reservation state its expected time.
    decision = run_cycle(snapshot, policy)
    foreseen = look_ahead(snapshot, decision, policy)
    everywhere = options.all_namespaces or options.namespace is None
    lines = [
        line
        for line in in_order(waiting_lines(snapshot, decision, foreseen))
        if everywhere or line.namespace == options.namespace
    ]
    about = {
        "time": clock_time(foreseen.now),
        "until": clock_time(foreseen.until),
        "cut": foreseen.cut.value,
        "policy": name,
    }
    remark = _remark(lines, name, f"at {clock_time(snapshot.now)}", foreseen.cut)
    return QueueOutlook(lines, snapshot.now, about, remark)


def _policy(
    options: argparse.Namespace, settings: SchedulingSettings, cycle: RecordedCycle
) -> tuple[str, Policy]:
    """Return the policy to play with, and its name."""
    if options.policy is None:
        remedy = "see --checkpoints, or name another by --policy"
        return policy_that_decided(settings, cycle, options.checkpoints, "--record", remedy)
    from bireme.contender import Contender

    with making("--policy", options.policy):
        named = Contender.read(options.policy, settings).settings(settings)
    return options.policy, as_set(named, "--policy", options.policy)[0]


def _remark(lines: Sequence[GangLine], policy: str, made: str, cut: Cut) -> str:
    starts = sum(line.earliest is not None for line in lines)
    return (
        f"{starts} of {len(lines)} gangs have a start by {policy} {made}: {_CUTS[cut]}. The "
        "forecast assumes that no gangs arrive and nothing fails"
    )
