"""Small sessions of every kind, saved in the middle of a run, and the releases that follow.

``python tests/helpers/saved_runs.py FOLDER`` writes one file for each kind, and the SHA-256 of the next
releases. The files in ``tests/mechanisms/saved_state/version_2`` were written by version 2 of the format.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Randomness, Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Message, Plan, Response, Schedule
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.seeded_rng import SeededRng

SEEDED = Seeded(5)
LAYOUT = Layout(2, 2, 2, np.array([[True, True], [True, False]]))
WIDE = Layout(3, 2, 2)
RNG = np.random.default_rng(5)
MIXED = MixtureFeatures(RNG.uniform(-1, 1, (3, 2, 3, 2)) / 4, 2.0)
PHI = Features(RNG.dirichlet(np.ones(2), (3, 2)), 1.0, l1=1.0, nonneg=True)
VALUES = np.array([RNG.uniform(0, 2 - h, 3) for h in range(3)])
CONTEXT = {"values": VALUES, "weights": np.full((1, 3, 2), 1.5)}
MIXTURE = MixtureQuery(layout=WIDE, features=MIXED, second=True, rewards="tabular", largest_weight=2.0)
MODEL = GramQuery(layout=WIDE, features=PHI)
REQUERY = GramQuery(layout=WIDE, features=PHI, model=False)
COUNTS = CountQuery(WIDE, visits=False, center_rewards=True)
PLAIN = CountQuery(LAYOUT)
POOLED = CountQuery(LAYOUT, visits=False, center_rewards=True, pooled="all")
GROUPS = CountQuery(LAYOUT, groups=2, clip=1.0)
CUT = CountQuery(LAYOUT, visits=False, center_rewards=True, cut=1.0)
EVERY = Schedule(14, times=np.arange(0, 14, 2))
READ = Schedule(14, times=np.arange(0, 14, 2), reads="measurements")
ASKED = Schedule(
    14, times=np.arange(0, 14, 2),
    queries=(CountQuery(WIDE, step=1, known_rewards=True), *[COUNTS] * 5),
)  # fmt: skip
FOLDER = Path(__file__).parents[1] / "mechanisms" / "saved_state" / "version_2"


@dataclass(frozen=True)
class Case:
    """One session: its privatizer, query and schedule, options of its plans, and its source of noise."""

    privatizer: Any
    query: Any = PLAIN
    schedule: Schedule = EVERY
    options: Callable[[int], dict[str, Any]] = field(default=lambda plan: {})
    source: Randomness = SEEDED
    envelopes: bool = False  # messages of devices are bytes


def _grouped(plan: int) -> dict[str, Any]:
    share = (None, 0.3, 0.0, 0.6, None, 0.2)[plan]
    return {"group": plan % 2, "return_share": share, "forget": plan == 3}


def _growing(plan: int) -> dict[str, Any]:
    return {"cut": (1.0, 1.25, None, 1.5, math.inf, None)[plan]}


CASES = {
    "exact": Case(dr.NoPrivacy()),
    "tree": Case(dr.Central(epsilon=1.0, release="tree")),
    "optimal tree": Case(dr.Central(mu=1.0, release="tree", tree_estimate="optimal")),
    "signed digits": Case(dr.Central(epsilon=1.0, release="signed-digits")),
    "square root": Case(dr.Central(mu=1.0, release="square-root")),
    "user leaves": Case(dr.Central(epsilon=1.0, preset="paper"), schedule=Schedule(14)),
    "open ended": Case(dr.Central(epsilon=1.0, release="tree"), schedule=Schedule(None)),
    "batches": Case(dr.Central(epsilon=1.0, release="batches")),
    "decaying": Case(dr.Central(mu=1.0, release="decaying", decay=0.7)),
    "pooled": Case(dr.Central(mu=1.0, release="decaying", decay=0.5), POOLED, READ),
    "groups": Case(dr.Central(mu=1.0, release="decaying", decay=0.5), GROUPS, READ, _grouped),
    "exact groups": Case(dr.NoPrivacy(), GROUPS, READ, _grouped),
    "cut": Case(dr.Central(mu=1.0, release="decaying", decay=0.5), CUT, READ, _growing),
    "exact cut": Case(dr.NoPrivacy(), CUT, READ, _growing),
    "device": Case(dr.Local(epsilon=1.0, randomizer="laplace")),
    "device envelopes": Case(dr.Local(epsilon=1.0, randomizer="laplace"), source=Secure(), envelopes=True),
    "reports": Case(dr.Local(epsilon=1.0, randomizer="subset")),
    "report envelopes": Case(dr.Local(epsilon=1.0, randomizer="oue"), envelopes=True),
    "server reports": Case(dr.Central(epsilon=1.0, release="reports")),
    "linear": Case(dr.NoPrivacy(), MIXTURE),
    "linear batches": Case(dr.Central(mu=1.0, release="batches"), MODEL),
    "linear tree": Case(dr.Central(mu=1.0, release="tree"), MIXTURE),
    "linear square root": Case(dr.Central(mu=1.0, release="square-root"), MODEL),
    "linear answers": Case(dr.Central(mu=1.0), REQUERY),
    "linear local": Case(dr.Local(epsilon=1.0, delta=1e-6), MODEL),
    "linear envelopes": Case(dr.Local(epsilon=1.0), MODEL, source=Secure(), envelopes=True),
    "shuffle": Case(dr.Shuffle(epsilon=1.0, delta=1e-2), COUNTS),
    "amplified": Case(dr.Shuffle(epsilon=1.0, delta=1e-2, randomizer="amplified"), COUNTS),
    "batches of none": Case(dr.NoPrivacy(), COUNTS, ASKED),
    "batches of central": Case(dr.Central(mu=1.0), COUNTS, ASKED),
    "batches of vectors": Case(dr.Local(epsilon=1.0, randomizer="laplace"), COUNTS, ASKED),
    "batches of reports": Case(dr.Local(epsilon=1.0), COUNTS, ASKED),
    "batches of shuffle": Case(dr.Shuffle(epsilon=1.0, delta=1e-2), COUNTS, ASKED),
    "secure tree": Case(dr.Central(epsilon=1.0, release="tree"), source=Secure()),
    "secure decaying": Case(dr.Central(rho=1.0, release="decaying", decay=0.7), source=Secure()),
    "secure square root": Case(dr.Central(rho=1.0, release="square-root"), MODEL, source=Secure()),
}


def started(case: Case) -> Any:
    """Return a new session."""
    return case.privatizer.start(case.query, case.schedule, case.source)


def user(i: int, layout: Layout) -> Trajectory:
    """Return the record of user i."""
    rng = np.random.default_rng(i)
    states = rng.integers(layout.states, size=3)
    actions = rng.integers(2, size=2) * (states[:2] == 0)
    return Trajectory(states, actions, rng.integers(0, 5, size=2) / 4)


def send(session: Any, case: Case, i: int) -> None:
    """Submit the message of user i to the open plan."""
    plan, nonce = session.open_plan, i.to_bytes(16, "little")
    if case.envelopes and isinstance(case.source, Secure):  # an honest device can send any small integers
        cells = np.random.default_rng(i).integers(-3, 4, session.query.cells)
        session.submit(Message(plan.number, message=session.device.write(plan.number, cells, nonce)))
        return
    coins = SecureRng() if isinstance(case.source, Secure) else SeededRng(Seeded(5).keys.noise, i)
    message = session.open_encoder(user(i, case.query.layout), plan, coins)
    if case.envelopes:
        sent = session.device.write(plan.number, np.asarray(message.message), nonce)
        message = Message(plan.number, message=sent)
    session.submit(message)


def digest(release: Any) -> str:
    """Return the SHA-256 of everything in a release."""
    out = hashlib.sha256(repr((release.users, release.number, release.guarantee.epsilon)).encode())
    parts = [release.estimates]
    if release.measurement is not None:
        parts.append(release.measurement.estimates)
        out.update(repr((release.measurement.decay, release.measurement.gain)).encode())
    for estimates in parts:
        for name, e in estimates.items():
            said = (name, e.value.shape, e.law.std(), e.law.std_bound(), e.estimand, e.covers, e.effective)
            out.update(repr(said).encode())
            out.update(np.ascontiguousarray(e.value, "<f8").tobytes())
    return out.hexdigest()


def ask(session: Any, steps: tuple[int, ...]) -> list[str]:
    """Return the SHA-256 of answers to the questions that are due, rounded to six decimals."""
    if getattr(session, "state", {}).get("answers") is None:
        return []
    found = [
        session.answer(Response(h, np.minimum(VALUES[h + 1], 1 - h), (0.0, float(2 - h)))) for h in steps
    ]
    # products of matrices differ between processors in the last bits
    values = [np.ascontiguousarray(np.round(e.value, 6) + 0.0, "<f8") for e in found]
    return [hashlib.sha256(value.tobytes()).hexdigest() for value in values]


def begin(session: Any, case: Case, plan: int) -> None:
    """Open a plan of two users."""
    layout = case.query.layout
    policy = np.full((2, layout.states), 0, np.int64)
    session.begin(Plan(policy, 2, dict(CONTEXT), **case.options(plan)))


def before(case: Case) -> Any:
    """Return a session after two releases with users, with one user of the third plan still to come."""
    session = started(case)
    session.release()
    for plan in range(2):
        begin(session, case, plan)
        for i in (2 * plan, 2 * plan + 1):
            if i == 1 and session.guarantee.trust != "shuffle":
                session.absent()
            else:
                send(session, case, i)
        session.release()
        ask(session, (1, 0))
    begin(session, case, 2)
    send(session, case, 4)
    return session


def after(session: Any, case: Case) -> list[str]:
    """Continue a session for four releases with users. Returns what was released."""
    send(session, case, 5)
    found = [digest(session.release()), *ask(session, (1, 0))]
    for plan in (3, 4, 5):
        begin(session, case, plan)
        for i in (2 * plan, 2 * plan + 1):
            send(session, case, i)
        found += [digest(session.release()), *ask(session, (1, 0))]
    session.close()
    return found


def is_repeatable(case: Case) -> bool:
    """Return whether two runs of a case release the same."""
    return case.envelopes or isinstance(case.source, Seeded)


def file_name(name: str) -> str:
    """Return the file of a case."""
    return name.replace(" ", "_") + ".bin"


def questions() -> Any:
    """Return a session of stored people with one answered question of two."""
    plan = [Question(kind="gram", step=1, mu=0.3), Question(kind="response", step=0, high=2.0, mu=0.3)]
    session = ResponseSession(WIDE, PHI, plan, Seeded(5), episodes=2)
    records = [user(i, WIDE) for i in range(4)]
    session.submit_many(
        Trajectories(*(np.stack([vars(one)[name] for one in records]) for name in vars(records[0]))),
        np.array([0, 0, 1, 2]),
    )
    session.gram(1)
    return session


def write(folder: Path) -> None:
    """Write the files and the expected releases."""
    expected: dict[str, list[str]] = {}
    for name, case in CASES.items():
        path = folder / file_name(name)
        path.unlink(missing_ok=True)
        if is_repeatable(case):
            expected[name] = after(before(case), case)
        before(case).save(path)
    path = folder / file_name("questions")
    path.unlink(missing_ok=True)
    questions().save(path)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
