"""Counting in parts: exact sums are computed where the data are stored, and merged before noise is drawn.

A dataset can be in many files or on many machines. Each part is then counted separately, with any scheduler
(for example a job array, Dask, Ray or Spark). A :class:`PartialAggregateFile` contains the exact sums of its
users (:class:`~discreet.mechanisms.dataset.partial_aggregate.PartialAggregate`) and a keyed hash of each
user's name. The parts are merged and then released as one dataset. The sums and the distribution of the
release are the same as if all rows had been read in one place.

**A part is raw data.** Its sums are exact, so they protect no user. The file is written with mode 0600.
Store, send and delete it with the same care as the trajectories.

Each user must be in only one part. Noise is calibrated to the records of one user in one part, so a user in
two parts would have twice the effect on the sums. Therefore all parts of one run are counted with one secret
key of 32 random bytes. The key file is made for the run and deleted after the run. A user is identified by a
128-bit BLAKE2b hash of their name with that key. Parts that have a user in common, or that have different
keys, schemas or queries, are rejected. Names are compared as strings: 7 and "7" are one user, but "7" and
"07" are two users. The probability that any two of n users have the same hash is at most n^2 / 2^129. In this
case, a valid run is rejected. No hash is part of a release.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.data.row_batches import Progress, Source
from discreet.data.schema import Schema
from discreet.data.synthetic_mark import SYNTHETIC_INPUT, Facts
from discreet.data.validate import episodes
from discreet.ledger.owner_rules import OwnerRule, check_dataset, rules_over
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.pipeline.learned_files import Kind, LinearSums, kind_of, name_of

Hashes = NDArray[np.uint64]

_LAYOUT = saved_state.FileLayout(b"\x89discreet-part0\n", 1, "a counted part")
_RAW = "exact sums of people's data: raw, private to them, and protected by nothing"
_KEY_BYTES = 32
_GRID = 1024
_FACTS = ("schema", "dataset", "question", "key")


def new_aggregate_key(path: str | Path) -> Path:
    """Write a new secret key to the file ``path`` with mode 0600, and return the path.

    Raises ``ValueError`` if the file exists or cannot be written.
    """
    path = Path(path)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(f"key = {str(path)!r}: exists already, must be a new file") from None
    except OSError as error:
        raise ValueError(f"key = {str(path)!r}: cannot be written ({error.strerror})") from None
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    return path


def read_aggregate_key(path: str | Path) -> bytes:
    """Read the key that :func:`new_aggregate_key` wrote to the file ``path``.

    Raises ``ValueError`` if the file does not contain such a key.
    """
    try:
        key = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"key = {str(path)!r}: must be a file that `discreet aggregate --new-key` made ({error.strerror})"
        ) from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"key = {str(path)!r}: has {len(key)} bytes, must have {_KEY_BYTES}")
    return key


class PartialAggregateFile:
    """Part of a dataset: exact sums of its users, and keyed hashes of their names. **Raw data.**

    The exact sums protect no user. :func:`aggregate_part` makes a part, and :meth:`load` reads one from a
    file.

    Parameters
    ----------
    tally : the exact sums
    people : (n, 2) uint64, the hashes of the users' names, one row per user
    facts : values that must be equal in all parts: the hash of the schema, the dataset, the kind of query,
        the digest of the key, and the facts of synthetic users if there are any
    rules : rules of the owners of the counted files; they apply to every release that is made from the part
    """

    def __init__(
        self,
        tally: PartialAggregate,
        people: Hashes,
        facts: Mapping[str, Any],
        rules: Mapping[Path, OwnerRule] | None = None,
    ) -> None:
        self.tally, self.people, self.facts, self.rules = tally, people, dict(facts), dict(rules or {})

    def __repr__(self) -> str:
        return f"<PartialAggregateFile of {len(self.people)} people: raw data, not private>"

    @property
    def synthetic(self) -> tuple[Facts, ...]:
        """Facts of synthetic users; empty for real data."""
        return tuple(self.facts.get(SYNTHETIC_INPUT, ()))

    def to_bytes(self) -> bytes:
        """Return the whole part as bytes, which are **raw data**. :meth:`from_bytes` reads them."""
        file = io.BytesIO()
        saved_state.write_content(file, secrets.token_hex(16), self._values(), {}, _LAYOUT)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> PartialAggregateFile:
        """Read a part from bytes.

        - name : name of the part in error messages.

        Raises ``ValueError`` if ``content`` is damaged or is not a part.
        """
        found = saved_state.read_content(io.BytesIO(content), len(content), name, {}, _LAYOUT)[1]
        try:
            tally = PartialAggregate.from_bytes(np.asarray(found["tally"], np.uint8).tobytes())
            people, facts = np.asarray(found["people"]), json.loads(found["facts"])
            rules = {Path(path): OwnerRule(**rule) for path, rule in json.loads(found["rules"]).items()}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{name}: is not a counted part ({error})") from None
        fits = people.dtype == np.uint64 and people.shape == (tally.people, 2)
        if not fits or sorted(facts.keys() - {SYNTHETIC_INPUT}) != sorted(_FACTS) or _repeated(people):
            raise ValueError(f"{name}: is not a counted part (its users are not those of its sums)")
        return cls(tally, people, facts, rules)

    def save(self, path: str | Path) -> None:
        """Write the part, which is **raw data**, to a new file with mode 0600.

        Raises ``ValueError`` if ``path`` exists, or if its folder does not exist.
        """
        draft = saved_state.Draft(path, _LAYOUT)
        try:
            draft.write(secrets.token_hex(16), self._values(), {})
            draft.publish()
        except BaseException:
            if not draft.published:
                draft.withdraw()
            raise

    @classmethod
    def load(cls, path: str | Path) -> PartialAggregateFile:
        """Read a part from the file ``path``, together with the owners' rules for this file.

        The file is not deleted. Raises ``ValueError`` if the file is damaged or does not contain a part.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
        part = cls.from_bytes(content, str(path))
        part.rules |= rules_over([Path(path)])
        return part

    def _values(self) -> dict[str, Any]:
        tally = np.frombuffer(self.tally.to_bytes(), np.uint8)
        rules = {str(path): rule.content() for path, rule in self.rules.items()}
        return {
            "raw": _RAW, "facts": json.dumps(self.facts), "rules": json.dumps(rules), "people": self.people,
            "tally": tally,
        }  # fmt: skip


def aggregate_part(
    source: Source,
    learner: Any,
    key: bytes,
    *,
    progress: Progress | None = None,
    scratch: str | Path | None = None,
    workers: int | None = None,
) -> PartialAggregateFile:
    """Return the exact sums that one learner needs, for one part of the data.

    All records of a user must be in the same part.

    Parameters
    ----------
    source : Source
        Files and their schema (:func:`discreet.data.row_batches.open_source`). The files must contain all
        rows of each of their users.
    learner : DecisionPoints, DPAPVI or APVI
        Learner that will be run on the sums. It determines which sums are counted; its noise and budget have
        no effect.
    key : 32 secret bytes
        Key that is the same for all parts of a run (:func:`read_aggregate_key`).
    progress, scratch, workers
        Passed to :func:`discreet.data.validate.episodes`, which describes them. Use ``workers = 1`` if only
        one processor is assigned to this process.

    Raises
    ------
    DataError
        If rows violate the schema. The error message contains private data.
    ValueError
        If the learner needs more than one release of sums, or the source contains no user.
    """
    which, schema = digest_of(key), source.schema
    kind, rules = kind_of(schema, learner), rules_over(source.files)
    for path, rule in rules.items():
        check_dataset(path, rule, schema.dataset)
    if isinstance(kind, LinearSums):
        raise ValueError(
            f"algorithm = {name_of(learner)!r}: queries users' data while it plans, and cannot be "
            "counted in parts; must be dp-apvi, apvi or decision-points"
        )
    tally, people = PartialAggregate(kind.query, _GRID), list[Hashes]()
    for part in episodes(source, progress=progress, scratch=scratch, workers=workers):
        tally.add(kind.to_records(part.trajectories, part.group), part.user)
        people.append(_hashed(part.names, key))
    if not people:
        raise ValueError("source: holds no rows")
    everybody = np.concatenate(people)
    if len(everybody) > tally.people:
        tally.absent(len(everybody) - tally.people)
    facts: dict[str, Any] = {**facts_of(schema, kind), "key": which}
    if source.synthetic:
        facts[SYNTHETIC_INPUT] = [dict(one) for one in source.synthetic]
    return PartialAggregateFile(tally, everybody, facts, rules)


def facts_of(schema: Schema, kind: Kind) -> dict[str, str]:
    """Return the facts that must be equal in all parts of a run, except the digest of the key.

    These are the hash of the schema, the dataset and the kind of query.
    """
    question = "first visits" if kind.asked else "counts of every step"
    return {"schema": schema.hash, "dataset": schema.dataset, "question": question}


def digest_of(key: bytes) -> str:
    """Return a digest that identifies the key but does not reveal it.

    Raises ``ValueError`` if ``key`` is not 32 bytes.
    """
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise ValueError(f"key: must be {_KEY_BYTES} secret bytes")
    return hashlib.blake2b(b"which key", digest_size=8, key=key).hexdigest()


def _hashed(names: Any, key: bytes) -> Hashes:
    """Return keyed hashes of the users' names, (n, 2) uint64. Names are hashed as text."""
    blank = hashlib.blake2b(digest_size=16, key=key)
    out = bytearray()
    for name in names.to_pylist():
        one = blank.copy()
        one.update(str(name).encode())
        out += one.digest()
    return np.frombuffer(bytes(out), "<u8").reshape(-1, 2).astype(np.uint64)


def merge_aggregates(parts: Iterable[PartialAggregateFile | str | Path]) -> PartialAggregateFile:
    """Merge several parts into one part. Each user must be in only one part.

    parts : parts, or paths of files that contain parts. Files are read one at a time.

    Raises
    ------
    ValueError
        If ``parts`` is empty, if schemas, queries or keys differ, or if a user is in two parts.
    """
    whole: PartialAggregateFile | None = None
    people: list[Hashes] = []
    for given in parts:
        one = given if isinstance(given, PartialAggregateFile) else PartialAggregateFile.load(given)
        name = repr(one) if isinstance(given, PartialAggregateFile) else str(given)
        if whole is None:
            whole = PartialAggregateFile(
                one.tally + PartialAggregate(one.tally.query, one.tally.grid),
                one.people,
                one.facts,
                one.rules,
            )
        else:
            for fact in whole.facts | one.facts:
                other, mine = one.facts.get(fact), whole.facts.get(fact)
                if other != mine:
                    raise ValueError(
                        f"{name}: was counted with another {fact} ({checks.said(other)} for "
                        f"{checks.said(mine)}): parts of one run must have the same"
                    )
            whole.tally.merge(one.tally)
            for path, rule in one.rules.items():
                if whole.rules.setdefault(path, rule) != rule:
                    raise ValueError(f"{name}: was counted under another rule {path} than the other parts")
        people.append(one.people)
    if whole is None:
        raise ValueError("parts: must be at least one")
    everybody = np.concatenate(people)
    # There can be many parts, so this frees the memory of parts that were read from files and are not needed
    # again.
    people.clear()
    if twice := _repeated(everybody):
        raise ValueError(
            f"parts: users who are in two of them: {twice} (a private number); all rows of a user must "
            "be in one"
        )
    return PartialAggregateFile(whole.tally, everybody, whole.facts, whole.rules)


def _repeated(people: Hashes) -> int:
    """Return the number of rows that are equal to an earlier row."""
    first = np.sort(people[:, 0])
    if not (first[1:] == first[:-1]).any():
        return 0
    order = np.lexsort((people[:, 1], people[:, 0]))
    first, second = people[order, 0], people[order, 1]
    return int(((first[1:] == first[:-1]) & (second[1:] == second[:-1])).sum())
