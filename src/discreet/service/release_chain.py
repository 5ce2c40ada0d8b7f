"""Chain of releases, and its head file.

With the head file, the service detects a database that is older than its publications.

Link i of the chain is SHA-256(link i - 1, identity of the study, i, SHA-256 of the served release, SHA-256 of
the exact release). The head is a file on another disk. It is never rewritten. Its first line names the study.
Each further line is ``number link beat nonce``: the newest release, its link, the newest beat and the nonce
of this beat.

**Order.** (1) One transaction stores a release, its link and the session's state. (2) The head gets a line,
which is flushed to the disk. (3) A second transaction opens the next plans. All readers show only releases up
to the current turn, so no user sees a release before (3). Therefore every published release is in the head.

**Beats.** The process that makes releases stores a *beat* (a number and a random nonce) at least every third
of a lease, and then writes the beat to the head. A database without the newest beat of the head is older than
this beat. It can lack messages that were answered with 202, even if it has every release.

**Start.** The head is read first and the database second. The database must contain the link and the beat of
the last line. If it does not, it is older than what was published, and :class:`OldDatabase` is raised. The
other order would reject healthy databases, because both grow between the two reads. A database can be one
release ahead of the head, if the process was killed between (1) and (2). This release was not published, and
the next line contains it.

Three cases are not detected: a copy that contains the newest beat, an old database with a head of the same
age, and a copy from before the first beat without a head. Clients that remember a later release detect these
cases.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.core import checks
from discreet.service.system_io import SYSTEM, Io

if TYPE_CHECKING:
    from discreet.service.database import Store
    from discreet.service.study_config import Study

__all__ = [
    "BEATS", "NO_LINK", "ChainMark", "Head", "OldDatabase", "check_head", "head_of", "link_of", "new_head",
]  # fmt: skip

BEATS = 10_000  # number of beats that a database keeps
NO_LINK = "0" * 64  # link before release 0
_LINE = re.compile(rb"(-1|\d{1,9}) ([0-9a-f]{64}) (\d{1,18}) ([0-9a-f]{16})\n")
_LONGEST = 112  # largest number of bytes in a line
_HEADING = re.compile(rb"discreet head 1 [0-9a-f]{64}\n")
_TAIL = 4096  # number of bytes at the end of the head that contain its last line
_FIRST = "discreet head 1"


class OldDatabase(ValueError):
    """Error that is raised if a database is older than what was published, or does not belong to its head."""

    exit_status = 3


@dataclass(frozen=True)
class ChainMark:
    """Newest release and newest beat of a database.

    Parameters
    ----------
    number : number of the newest release; -1 at a shuffler.
    link : link of this release, 64 hexadecimal digits.
    beat, nonce : number of the newest beat, and its 16 hexadecimal digits.
    """

    number: int
    link: str
    beat: int
    nonce: str

    def line(self) -> bytes:
        """Return the line of the head."""
        return f"{self.number} {self.link} {self.beat} {self.nonce}\n".encode()


def link_of(before: str, identity: str, number: int, body: bytes, exact: bytes) -> str:
    """Return link ``number`` of the chain, as 64 hexadecimal digits.

    Parameters
    ----------
    before : link of the release before; :data:`NO_LINK` for release 0.
    identity : identity of the study.
    number : number of the release.
    body, exact : served bytes and exact bytes of the release.
    """
    digests = hashlib.sha256(body).digest() + hashlib.sha256(exact).digest()
    text = f"{before} {identity} {number} ".encode()
    return hashlib.sha256(text + digests).hexdigest()


class Head:
    """Head file of a database.

    - path : path of the file. It has mode 0600.
    - identity : identity of the study.
    - io : access to files.
    """

    def __init__(self, path: Path, identity: str, io: Io = SYSTEM) -> None:
        self.path, self._first, self._io = path, f"{_FIRST} {identity}\n".encode(), io

    def __str__(self) -> str:
        return f"head {str(self.path)!r}"

    def last(self) -> ChainMark | None:
        """Return the last complete line; None if the file does not exist or has no complete line.

        Raises :class:`OldDatabase` if the file is damaged or belongs to another study.
        """
        return self._read()[0]

    def newest_readable(self) -> ChainMark | None:
        """Return the newest undamaged line among the last :data:`BEATS` ones; None if there is none.

        Returns None for the head of another study.
        """
        first = self._io.tail(self.path, 0) and self._io.read(self.path, len(self._first))
        if not first or (_HEADING.fullmatch(first) and first != self._first):
            return None
        tail = (self._io.tail(self.path, BEATS * _LONGEST) or (0, b""))[1]
        found = [_LINE.fullmatch(line + b"\n") for line in tail.split(b"\n")]
        marks = [_mark(line) for line in found if line]
        return max(marks, key=lambda mark: (mark.number, mark.beat), default=None)

    def set_aside(self) -> Path | None:
        """Rename the file. Returns the new name, or None if the file does not exist."""
        if self._io.tail(self.path, 0) is None:
            return None
        kept, number = self.path, 0
        while self._io.tail(kept, 0) is not None:
            number += 1
            kept = self.path.with_name(f"{self.path.name}.{number}")
        self._io.rename(self.path, kept)
        return kept

    def check(self) -> None:
        """Check the first line and the last one.

        Raises :class:`OldDatabase` if one of the two lines is damaged.

        The other lines are not read, because no decision depends on them.
        """
        if self.last() is not None and self._io.read(self.path, len(self._first)) != self._first:
            raise OldDatabase(f"{self}: is not the head of this study")

    def begin(self) -> None:
        """Create the file and write the first line, if the file does not exist."""
        self._io.append(self.path, b"")
        with self._io.locked(self.path):
            if not self._read()[1]:
                self._io.append(self.path, self._first, 0)

    def append(self, mark: ChainMark) -> bool:
        """Add a line and flush it to the disk.

        An incomplete last line, which a crash can leave, is removed first. Returns False and adds nothing if
        the last line has a later release or a later beat, because another process has added it.

        Raises ``FileNotFoundError`` if the file does not exist. Raises :class:`OldDatabase` if the last line
        has the same release with another link, or the same beat with another nonce. In this case, two copies
        of the database write to the head.
        """
        with self._io.locked(self.path):
            last, whole = self._read()
            if last is not None and (
                (last.number == mark.number and last.link != mark.link)
                or (last.beat == mark.beat and last.nonce != mark.nonce)
            ):
                raise OldDatabase(f"database: another copy of it is being served: {self} has its lines")
            newer = last is None or (last.number <= mark.number and last.beat <= mark.beat)
            if newer:
                self._io.append(self.path, mark.line(), whole)
            return newer

    def _read(self) -> tuple[ChainMark | None, int]:
        """Return the last complete line, and the number of bytes up to its end."""
        at, tail = self._io.tail(self.path, _TAIL) or (0, b"")
        whole = tail[: tail.rfind(b"\n") + 1]
        begins = tail[: len(self._first)]
        if not at and begins != self._first[: len(begins)]:
            raise OldDatabase(f"{self}: is not the head of this study")
        if at + len(whole) <= len(self._first):
            return None, at + len(whole)
        found = _LINE.fullmatch(whole[whole[:-1].rfind(b"\n") + 1 :])
        if found is None:
            raise OldDatabase(f"{self}: its last line is damaged: put the file back from a backup")
        return _mark(found), at + len(whole)


def _mark(line: re.Match[bytes]) -> ChainMark:
    number, link, beat, nonce = (part.decode() for part in line.groups())
    return ChainMark(int(number), link, int(beat), nonce)


def head_of(study: Study, store: Store, io: Io = SYSTEM) -> Head | None:
    """Return the head of a database, or None if the database is in memory.

    Its path is ``[chain] head`` of the study file. By default, it is the path of a SQLite file with ".head"
    at the end, or ``study.head`` in the folder of the study file.
    """
    if study.head is not None:
        return Head(study.path(study.head), study.identity, io)
    if not store.sqlite:
        return Head(study.path("study.head"), study.identity, io)
    file = store.file
    return None if file is None else Head(file.with_name(f"{file.name}.head"), study.identity, io)


def check_head(store: Store, head: Head, seen: ChainMark | None) -> None:
    """Check that a database contains what its head contains.

    Parameters
    ----------
    seen : last line of the head, which was read before the database.

    Raises :class:`OldDatabase` if the database is older than the head, or if the head is missing or older
    than the database.
    """
    newest = store.mark()
    remedy = "; if this database is the newest one, start once with --new-head"
    if seen is None and newest.beat:  # the first line is written before the first beat is stored
        seen = head.last()
        if seen is None:
            raise OldDatabase(
                f"{head}: is missing or empty, but this database has been served: put it back{remedy}"
            )
    if seen is None:
        return
    newest = _contains(store, head, seen)
    if _is_behind(seen, newest):  # other processes can have added lines since the head was read
        seen = head.last() or seen
    if _is_behind(seen, newest):
        raise OldDatabase(
            f"{head}: ends at release {seen.number}, and the database at {newest.number}: put the newest "
            f"head back{remedy}"
        )


def _is_behind(seen: ChainMark, newest: ChainMark) -> bool:
    """Return True if a line of the head is older than is possible for a database that was served."""
    return newest.number > seen.number + 1 or newest.beat >= seen.beat + BEATS


def _contains(store: Store, head: Head, seen: ChainMark) -> ChainMark:
    """Return the newest release and beat of a database that contains the given line of the head.

    A database does not keep the nonces of old beats, so these are not compared. Raises :class:`OldDatabase`
    if the database does not contain the line.
    """
    nonce, link, newest = store.nonce(seen.beat), store.link(seen.number), store.mark()
    removed = nonce is None and newest.beat >= seen.beat + BEATS
    if link != seen.link or not (nonce == seen.nonce or removed):
        raise OldDatabase(
            f"database: this database is older than what was published: {head} has release {seen.number} and "
            f"beat {seen.beat}, which are not in it (its newest are {newest.number} and {newest.beat}); a "
            "second draw of noise would break the guarantee: put the newest database back"
        )
    return newest


def new_head(store: Store, head: Head) -> Path | None:
    """Begin a new head with the content of the database. The old file gets another name.

    Returns the new name of the old file, or None if no file existed. An operator does this only after a head
    was lost. The operator must be sure that no later database exists.

    Raises :class:`OldDatabase` if a line of the old file shows that the database is older than what was
    published. A damaged old file can contain such a line too.
    """
    checks.exactly("head", head, Head)
    seen = head.newest_readable()
    if seen is not None:
        _contains(store, head, seen)
    kept = head.set_aside()
    head.begin()
    head.append(store.mark())
    return kept
