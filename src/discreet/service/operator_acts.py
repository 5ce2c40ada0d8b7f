"""Acts of the operator while a study runs: pause, resume, and a longer time to answer.

``pause`` stops new reservations until ``resume``. Reservations that exist keep their time, and their answers
are accepted. ``extend`` makes ``answer_within`` longer, also for reservations that are open. It cannot become
shorter, because users rely on the published time. Acts are rows of the database, so they hold for
every process and after a restart. ``GET /log`` shows them.

**Privacy.** An act is an event of the log, like a request for a place. The proofs of the rules "resolved" and
"clock" hold for every log that depends only on earlier releases. So does the guarantee: an act can depend on
releases, and on anything outside the study. It must not depend on users' messages. With the rule "clock", it
must not depend on the number or the times of answers either. Sizes of batches and noise never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["ActKind", "Standing", "standing_of"]

ActKind = Literal["pause", "resume", "extend"]


@dataclass(frozen=True)
class Standing:
    """Result of all acts of the operator.

    Parameters
    ----------
    paused : True if no new reservation is given.
    extended : longest ``answer_within`` that was recorded, in seconds; 0 if none was.
    """

    paused: bool = False
    extended: float = 0.0

    def stays(self, seconds: float) -> float:
        """Return the seconds between a reservation and its deadline.

        seconds : value of the study file.
        """
        return max(seconds, self.extended)


def standing_of(acts: Iterable[tuple[str, float | None]]) -> Standing:
    """Return the result of acts, which are pairs (kind, seconds) in their order."""
    paused, extended = False, 0.0
    for kind, seconds in acts:
        if kind == "extend":
            extended = max(extended, seconds or 0.0)
        else:
            paused = kind == "pause"
    return Standing(paused, extended)
