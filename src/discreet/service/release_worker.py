"""Turns of a study. A turn makes the next release and the next plans when the batch is complete.

A batch is complete when every user has answered or is absent, or at a fixed time
(:mod:`discreet.service.clock_batches`). A turn depends only on the content of the
database and on noise. It loads the session from its stored state, adds the batch's messages in the order of
their tickets, and draws the release. It stores the release and the session's new state in one transaction
(:meth:`discreet.service.database.Store.drew`). After this transaction, the release is final. The learner
computes the next plans from the stored release, and a second transaction opens these plans
(:meth:`discreet.service.database.Store.turned`). If the process is killed between the two transactions,
nothing is lost. After a restart, it continues with the second transaction.

**Noise.** A release is published only from the database, after the commit. If the process dies before the
commit, or the transaction is rejected, no one has seen the draw. The stored state does not contain this draw,
and the noise is drawn again. Before the commit, only the code that stores the drawn numbers reads them.
Therefore a failure does not reveal them. A committed release is never drawn again, because the table has one
row per release. A session with seeded noise draws the same numbers again, which a dry run requires.

**State of the learner.** It depends only on the releases. The state is not stored, but recomputed from the
releases. The recomputed plans must equal the stored plans, bit for bit. This check detects changes of the
learner's code, which the operator can accept (:mod:`discreet.service.frozen_mechanism`).

**Shuffle trust.** Only the shuffler has single messages (:mod:`discreet.service.shuffler`). A turn begins
when the shuffler's sum of the batch has arrived. The session receives this sum instead of single messages.

**Plans.** A learner may divide the users who follow a release among several plans. All these plans are made
together with the release, and are open at the same time. The session processes them one after the other, as
in a simulation.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.releases import Message, Plan, Release
from discreet.core.rng import Seeded
from discreet.device.context_policy import ARRAYS
from discreet.device.published_device import device_from_bytes
from discreet.mechanisms.interfaces import followed_release
from discreet.mechanisms.restore_session import brought_back
from discreet.mechanisms.saved_state.save import taken_out
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall
from discreet.service import encoding as codec
from discreet.service.batch_sums import ShuffledBatches, opened_sum
from discreet.service.database import Drawn, StaleWriter, Store
from discreet.service.frozen_mechanism import check_learner, first_program, frozen
from discreet.service.ledger_reservation import publish
from discreet.service.message_validation import CentralAdmission, LocalAdmission, admission_of
from discreet.service.release_chain import Head, OldDatabase, check_head
from discreet.service.study_config import Study
from discreet.service.system_io import SYSTEM, Io

__all__ = ["LEASE", "LeaseHolder", "Writer", "begin_study"]

log = logging.getLogger("discreet.service")

LEASE = 5.0  # duration of a writer's lease in seconds; it is renewed after a third of this time


@dataclass(frozen=True)
class _Made:
    """Plans that follow from one release, and the learner's state after these plans."""

    state: Any
    plans: tuple[Plan, ...]


def _planned(
    study: Study, state: Any, release: Release, followed: Sequence[tuple[Any, int]] | None = None
) -> _Made:
    """Return the plans after a release, and the learner's state after these plans.

    followed : policies that the users of the newest batch followed, each with its number of users; None: the
        users followed the last plans.
    """
    plans: list[Plan] = []
    if followed is not None:
        release = followed_release(release, followed)
    while not plans or not plans[-1].last:
        plan, state = study.learner.plan(state, release, _asked)
        given = (plan.group, plan.return_share, plan.cut, plan.forget)
        extra = plan.context.keys() - (ARRAYS if study.features is not None else ())
        if extra or given != (None, None, None, False):
            raise ValueError(f"learner: {type(study.learner).__name__} makes plans that are not served")
        plans.append(plan)
        if release.users + sum(int(one.users) for one in plans) >= study.users:
            break  # no users are left for further plans
    return _Made(state, tuple(plans))


def _asked(question: Any) -> Any:
    raise ValueError("answer: a service stores no user data, so it answers no new query")


def _drawn(release: Release, session: bytes, now: float) -> Drawn:
    date = datetime.fromtimestamp(now, UTC).date().isoformat()
    body = codec.canonical(codec.release_table(release, date))
    return Drawn(release.number, codec.exact(release), body, codec.digest(body), session)


def _rows(plans: tuple[Plan, ...], first: int) -> list[tuple[int, int, str]]:
    rows = []
    for number, plan in enumerate(plans, first):
        table = codec.plan_table(plan, number)
        rows.append((number, table["users"], codec.canonical(table).decode()))
    return rows


def _policy(row: dict[str, Any]) -> np.ndarray[Any, Any]:
    return codec.policy_of(json.loads(row["policy"]))


def _ties(study: Study, io: Io) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the key of the random bits that break ties between actions. The key is public, and is stored in
    the database.
    """
    if isinstance(study.randomness, Seeded):
        return study.randomness.keys.ties
    return np.frombuffer(io.random_bytes(16), np.uint64)


def begin_study(study: Study, store: Store, ledger: dict[str, Any] | None = None, io: Io = SYSTEM) -> None:
    """Make release 0, which contains no users, and store it in an empty database together with the first
    plans.
    """
    session, ties, now = study.start(), _ties(study, io), store.clocked(io).now()
    release = session.release()
    followed = None if study.close_rule == "all" else ()
    made = _planned(study, study.learner.begin(study.spec, ties), release, followed)
    form = _form(study, session)
    first = _drawn(release, taken_out(session), now)  # type: ignore[arg-type]
    plans = _rows(made.plans, 1)
    close = study.close_rule
    store.create(
        study.identity, ties.tobytes(), form, json.dumps(ledger), first, plans, now, close,
        first_program(study),
    )  # fmt: skip
    store.batches, store.participation = study.batches(close, now), study.participation


def _form(study: Study, session: Any) -> bytes:
    """Return the form of messages that is published to devices; it is empty under central trust.

    Under local trust, the form is valid for all plans. Under shuffle trust, it is valid for the first batch.
    """
    if study.shuffled:
        return ShuffledBatches(study, session.number).form(0)
    form: bytes = session.device.to_bytes() if study.local else b""
    return form


def _without(last: Release, nobody: Release, users: int, number: int) -> Release:
    """Return the release after a batch without a sum. It repeats the last release, with an empty measurement.

    ``nobody`` is release 0, ``users`` is the number of users so far, and ``number`` is the number of the new
    release. The result contains no data of the batch. The learner continues as if the users of the batch had
    been counted.
    """
    return replace(last, users=users, number=number, measurement=nobody.measurement)


class LeaseHolder:
    """Process that holds the lease of a database, or waits for the lease.

    The lease is the right to make releases. Only one process has it at a time.

    ``token`` is the token of the lease while this process holds it, and None otherwise. ``io`` is the clock.
    ``head`` is the head of the chain (:mod:`discreet.service.release_chain`); None: without a chain.
    """

    def __init__(self, store: Store, holder: str, io: Io) -> None:
        self._store, self._holder, self._io = store, holder, io
        self._holding = io.lock()
        self.token: int | None = None
        self.head: Head | None = None
        self._beaten = -LEASE  # time of this process's last beat

    def hold(self) -> bool:
        """Take or extend the lease. Returns False if another process holds the lease."""
        # this lock prevents a thread from finding the lease taken by another thread of this process
        with self._holding:
            now = self._io.now()
            beat = self.head is not None and abs(now - self._beaten) >= LEASE / 6
            if self.token is None or not self._store.keep(self.token, now, LEASE, beat=beat):
                beat = self.head is not None
                self.token = self._take(now)
            if self.token is not None and beat:
                self._beaten = now
                self.write_head()
            return self.token is not None

    def _take(self, now: float) -> int | None:
        """Take the lease, and check the head before the first beat. Returns the token of the lease or None.

        Raises :class:`~discreet.service.release_chain.OldDatabase` if the database is older than its head.
        """
        seen = None if self.head is None else self.head.last()  # read before the database
        token = self._store.lease(self._holder, now, LEASE)
        if token is None or self.head is None:
            return token
        try:
            check_head(self._store, self.head, seen)
            if seen is None:
                self.head.begin()
                self.head.append(self._store.mark())  # a database with a beat needs a line in the head
            return token if self._store.keep(token, now, LEASE, beat=True) else None
        except BaseException:
            self._store.release_lease(token, now)
            raise

    def write_head(self) -> None:
        """Write the newest release and the newest beat to the head.

        If this fails, this process makes no releases until it takes the lease again.
        """
        if self.head is None:
            return
        try:
            for _ in range(3):  # another thread can add a line after the database was read
                if self.head.append(self._store.mark()):
                    return
            raise OldDatabase(f"database: is older than {self.head}: it was replaced while it was served")
        except BaseException:
            self.token = None
            raise

    def release_lease(self) -> None:
        """Release the lease, so that the next process can take it at once."""
        if self.token is not None and self.head is not None:
            self._beaten = -LEASE  # the last beat comes after the last answer
            self.hold()
        if self.token is not None:
            self._store.release_lease(self.token, self._io.now())
            self.token = None


class Writer(LeaseHolder):
    """Writer that makes a study's releases while it holds the lease.

    Parameters
    ----------
    io : clock, for leases.
    before_commit : function that is called between the draw of the noise and the storage of the release.
        Tests use it to kill the process at this point, or to let another process act first.
    """

    def __init__(
        self,
        study: Study,
        store: Store,
        holder: str,
        io: Io,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(store, holder, io)
        self._study = study = frozen(study, store)
        # turn at which the operator last accepted another learner; -1 for none
        self._accepted = check_learner(study, store)
        self._before_commit = before_commit or (lambda: None)
        # (turn, the learner's state after the plans of this turn)
        self._learned: tuple[int, Any] | None = None
        self._lock = io.lock()
        about = store.about()
        self._ties = np.frombuffer(bytes(about["ties"]), np.uint64)
        form = bytes(about["form"])
        self.batches = ShuffledBatches(study, device_from_bytes(form).session) if study.shuffled else None
        self.cells = study.mechanism.query.cells
        self._admission = None if study.shuffled else admission_of(study, form)
        with closing(brought_back(store.session()[1])) as session:
            if session.guarantee != study.guarantee:
                raise ValueError(
                    f"study = {checks.said(study.name)}: states another guarantee than the session that the "
                    "database holds; what is fixed before users take part cannot change later"
                )
        # built from the frozen mechanism, because the rule must fit its noise
        if store.batches != study.batches(store.close_rule(), store.begun()):
            raise RuntimeError("store.batches: must be the rule that the database was begun with")
        if store.participation != study.participation:
            raise RuntimeError("store.participation: must be that of the study")
        self._no_followed = None if store.batches is None else ()  # before release 0
        self.refused = 0  # number of admitted messages that the session rejected; always 0 without a bug
        self._booked = False  # True if this process has marked the reservation in the ledger

    # ------------------------------------------------------------------------- one turn
    def step(self) -> bool:
        """Make the next release if the batch is complete.

        Returns True if a release was made.

        Raises :class:`~discreet.service.database.StaleWriter` if another process made the release first.
        """
        with self._lock:
            token = self.token
            if token is None:
                return False
            about = self._store.about()
            if about["over"]:
                return False
            self._store.close_due(int(about["turn"]), self._io.now())
            if not self._is_whole(int(about["turn"])):
                return False
            try:
                self._turn(int(about["turn"]))
            except StaleWriter:
                if self.token == token:
                    self.token = None
                self._learned = None
                raise
            return True

    def _is_whole(self, turn: int) -> bool:
        """Return True if batch ``turn`` is complete.

        A batch is complete if every user has answered or is absent. Under shuffle trust, it is complete if
        the shuffler's sum has arrived.
        """
        if self.batches is not None:
            return self._store.sum_of(turn) is not None
        return self._store.is_whole(turn)

    def _turn(self, batch: int) -> None:
        study, token = self._study, self.token
        assert token is not None
        turn, content = self._store.session()
        if turn != batch:
            raise StaleWriter(f"turn {batch}: is over")
        state = self._state_after(turn)
        # if this release exists, an earlier process stored it, but did not open its plans
        kept = self._store.exact_release(turn + 1)
        if kept is not None and self._is_early(turn):
            return
        early = self._is_early(turn)
        release = self._draw(turn, content) if kept is None else codec.of_exact(kept)
        if release is None or self._is_early(turn):
            return
        if early:
            log.warning("the draw of release %d took longer than the time before its plans open", turn + 1)
        self.write_head()  # before a user sees the release
        made = _planned(study, state, release, self._followed(turn))
        if self.batches is not None:
            self.batches.check(release.users, [int(one.users) for one in made.plans])
        rows = _rows(made.plans, int(self._store.policies(turn)[-1]["number"]) + 1)
        self._store.turned(token, turn, rows, self._io.now(), LEASE)
        self._learned = release.number, made.state

    def _is_early(self, turn: int) -> bool:
        """Return True if the plans after batch ``turn`` must not open yet."""
        rule = self._store.batches
        return rule is not None and self._io.now() < rule.opens(turn)

    def _followed(self, turn: int) -> list[tuple[Any, int]] | None:
        """Return the policies that the users of batch ``turn`` followed, and the number of users of each
        policy.

        Returns None if plans close batches, because the learner then knows these policies. Plans that another
        learner made are an exception.
        """
        if self._store.batches is None and turn > self._accepted:
            return None
        return [(_policy(part), int(part["users"])) for part in self._store.followed(turn)]

    def _draw(self, turn: int, content: bytes) -> Release | None:
        """Draw, store and return the next release; return None if the batch was the last of the study."""
        study, token = self._study, self.token
        assert token is not None
        if not self._booked:
            about = self._store.about()
            publish(study, json.loads(about["ledger"]), bytes(about["ties"]))
            self._booked = True
        parts = self._store.batch(turn)
        session: Any = brought_back(content)
        try:
            if session.users + sum(int(one["users"]) for one in parts) >= study.users:
                self._store.ended(token, turn)
                return None
            for at, part in enumerate(parts, 1):
                self._submit(session, Plan(_policy(part), part["users"], last=at == len(parts)), part, turn)
            release: Release = session.release() if self.batches is None else self._let_out(session, turn)
            rule, now = self._store.batches, self._io.now()
            # by the clock, the date does not depend on the duration of the draw
            closed = math.inf if rule is None else rule.closes(turn)
            new = _drawn(release, taken_out(session), min(closed, now))
        finally:
            session.close()
        self._before_commit()
        self._store.drew(token, turn, new, self._io.now(), LEASE)
        return release

    def _let_out(self, session: Any, turn: int) -> Release:
        """Return the release after the batch of a turn.

        This method is for shuffle trust: the release uses the shuffler's sum. If the batch has no sum, the
        last release is repeated with an empty measurement.
        """
        assert self.batches is not None
        kept, before = self._store.sum_of(turn), self._store.people_before(turn)
        assert kept is not None
        shuffler, people = self.batches.shuffler(before), session.users - before
        counted = opened_sum(json.loads(kept)["content"], self._study.identity, shuffler, people)
        if counted is not None:
            session.submit_counted(counted)
        try:
            release: Release = session.release()
        except BatchTooSmall:
            nobody = self._store.exact_release(0)
            assert nobody is not None
            return _without(session.release(), codec.of_exact(nobody), session.users, turn + 1)
        return replace(release, number=turn + 1)  # the session's own numbers skip batches without a sum

    def _submit(self, session: Any, plan: Plan, part: dict[str, Any], turn: int) -> None:
        """Open a plan in the session, and add the users of the batch who followed this plan.

        With the rule "resolved", the session's own numbers differ from the published numbers of plans,
        because a plan can have users in several batches. An envelope has the published number, so it is
        opened here.
        """
        session.begin(plan)
        if self._admission is None:
            session.absent(int(plan.users))
            return
        number, published = session.open_plan.number, part["number"]
        mixed = self._store.batches is not None
        if number != published and not mixed:
            raise RuntimeError(f"plan {published}: the session calls it {number}")
        bodies = self._store.messages(published, turn if mixed else None)
        if len(bodies) != part["came"]:
            raise RuntimeError(f"plan {published}: {len(bodies)} messages are stored of {part['came']}")
        absent = int(part["absent"])
        if bodies and isinstance(self._admission, CentralAdmission):
            late = bodies[int(plan.users) :]
            if late:  # messages of users whom an earlier batch counted as absent
                session.submit_many(self._admission.records(late), number, late=True)
            session.submit_many(self._admission.records(bodies[: int(plan.users)]), number)
        elif isinstance(self._admission, LocalAdmission):
            for body in bodies:
                try:
                    sent = self._admission.opened(published, body) if mixed else body
                    session.submit(Message(number, message=sent))
                # The session rejects an admitted message. This case has never been observed. The user of such
                # a message counts as absent, so that other users do not have to wait.
                except ValueError:
                    self.refused += 1
                    absent += 1
        if absent > 0:
            session.absent(absent)

    # ------------------------------------------------------------------------- the learner
    def _state_after(self, turn: int) -> Any:
        """Return the learner's state after the plans of a turn, recomputed from the releases."""
        if self._learned is None or self._learned[0] != turn:
            state, first = self._study.learner.begin(self._study.spec, self._ties), 1
            for number in range(turn + 1):
                kept = self._store.exact_release(number)
                assert kept is not None
                followed = self._followed(number - 1) if number else self._no_followed
                made = _planned(self._study, state, codec.of_exact(kept), followed)
                stored = [row["policy"] for row in self._store.policies(number)]
                again = [
                    codec.canonical(codec.plan_table(plan, at)).decode()
                    for at, plan in enumerate(made.plans, first)
                ]
                if again != stored and number > self._accepted:
                    raise RuntimeError(
                        f"release {number}: this version of the library makes other plans from it than "
                        "users received; continue with the earlier version, or start once with "
                        "--accept-learner"
                    )
                state, first = made.state, first + len(stored)
            self._learned = turn, state
        return self._learned[1]
