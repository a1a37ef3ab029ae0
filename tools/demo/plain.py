"""The live view where there is no terminal: a line per thing that happened, totals now and then."""

from collections.abc import Callable
from typing import Final

from testbed.history.records import Key, Record
from tools.demo.timeline import Timeline
from tools.demo.words import about

TOTALS_SECONDS: Final = 5.0
_UNSEEN: Final = ("backfilled", "grown", "shrunk")


class Plain:
    """Passes lines about records to ``say``, each once."""

    def __init__(self, timeline: Timeline, say: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._say = say
        self._shown: dict[Key, tuple[str, str]] = {}
        self._totals_at = 0.0
        self._moments = 0

    def take(self, record: Record) -> None:
        """Report a record that the timeline has just taken in, if it is news about a job."""
        self._tell_moments()
        if record.kind != "TrainingJob" or record.change == "DELETED":
            return
        story = self._timeline.stories[record.key]
        status = record.manifest.get("status", {})
        what = (status.get("phase") or "submitted", status.get("reason") or "")
        if self._shown.get(record.key) == what:
            return
        self._shown[record.key] = what
        words = about(story, record.seconds)
        if not status:
            words = f"{story.gpus} GPU{'s' * (story.gpus != 1)}, queue {story.queue}"
        self._say(f"{record.seconds:5.1f} s  {story.name:15} {what[0]:10} {words}")

    def _tell_moments(self) -> None:
        """Report resizes and backfills, which neither phase nor reason shows."""
        found = self._timeline.moments.found
        for moment in found[self._moments :]:
            if moment.kind in _UNSEEN:
                self._say(
                    f"{moment.seconds:5.1f} s  {moment.job:15} {moment.kind:10} {moment.text}"
                )
        self._moments = len(found)

    def totals(self, now: float) -> None:
        """Report the number of jobs by state, when it is time again."""
        if now - self._totals_at < TOTALS_SECONDS:
            return
        self._totals_at = now
        waiting, running, ended = self._timeline.counts
        busy = self._timeline.usage[-1].total if self._timeline.usage else 0
        self._say(
            f"{now:5.1f} s  --- {waiting} waiting, {running} running, {ended} finished; "
            f"{busy} of {self._timeline.gpus} GPUs busy"
        )
