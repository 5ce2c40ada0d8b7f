"""Counts of requests by the hour, and the last error of a process. They are in its memory only.

The operator's page (``GET /operator``) shows them. A count names no user, and the hour of a request is not
stored.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from discreet.service.system_io import Io

__all__ = ["GIVEN", "Activity"]

HOURS = 24  # number of hours for which counts are kept
GIVEN = frozenset({"counted", "placed", "issued", "withdrawn"})  # results that are not refusals


class Activity:
    """Counts of a process by the hour, and its last error.

    - io : clock.
    """

    def __init__(self, io: Io) -> None:
        self._io = io
        self._hours: dict[int, Counter[str]] = {}
        self.error = ""  # time and cause of the last error; empty if there was none

    def add(self, status: str) -> None:
        """Count the result of a request in the current hour."""
        hour = int(self._io.now() // 3600)
        if hour not in self._hours:
            self._hours[hour] = Counter()
            for old in sorted(self._hours)[:-HOURS]:
                del self._hours[old]
        self._hours[hour][status] += 1

    def fail(self, cause: str) -> None:
        """Keep the cause of an error with its time."""
        self.error = f"{_text(self._io.now())}: {cause}"

    def rows(self) -> list[tuple[str, int, int, str]]:
        """Return for each hour, newest first: its start, numbers of requests that were done, of guests, and
        refusals by reason.

        A guest is a request for a place that found none, so that its user can follow a published policy.
        """
        rows = []
        for hour, counts in sorted(self._hours.items(), reverse=True):
            refused = {name: n for name, n in sorted(counts.items()) if name not in GIVEN and name != "full"}
            said = ", ".join(f"{name}: {n}" for name, n in refused.items())
            rows.append((_text(3600.0 * hour), sum(counts[name] for name in GIVEN), counts["full"], said))
        return rows


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
