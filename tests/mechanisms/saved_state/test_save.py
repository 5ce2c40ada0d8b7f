"""Saved sessions of linear sums, batches and the shuffle model go on as if nothing had happened, and once."""

import functools
import hashlib
import itertools
import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.shuffle_payload import COIN, Family, SessionConfig
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Plan, Response, Schedule
from discreet.mechanisms.linear import dataset_sums as stored
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.restore_session import brought_back
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES, taken_out
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall

S, A, H, D = 3, 2, 3, 2
LAYOUT = Layout(S, A, H)
RNG = np.random.default_rng(5)
TABLE = RNG.uniform(-1, 1, (S, A, S, D)) / 4
MIXED = MixtureFeatures(TABLE, 2.0)
PHI = Features(RNG.dirichlet(np.ones(D), (S, A)), 1.0, l1=1.0, nonneg=True)
PSI = Features(RNG.dirichlet(np.ones(2), (S, A)), 1.0, l1=1.0)
POLICY = np.zeros((H, S), np.int64)
VALUES = np.array([RNG.uniform(0, H - h, S) for h in range(H + 1)])
CONTEXT = {"values": VALUES, "weights": np.full((H - 1, S, A), 1.5)}
MIXTURE = MixtureQuery(layout=LAYOUT, features=MIXED, second=True, rewards="tabular", largest_weight=2.0)
PAID = MixtureFeatures(TABLE, 2.0, rewards=PSI)
CENTRED = MixtureQuery(layout=LAYOUT, features=PAID, rewards=PSI, targets="centred")
MODEL = GramQuery(layout=LAYOUT, features=PHI)
REQUERY = GramQuery(layout=LAYOUT, features=PHI, model=False)
COUNTS = CountQuery(LAYOUT, visits=False, center_rewards=True)
EVERY = Schedule(6, times=np.array([0, 2, 4]))
CRUDE = CountQuery(LAYOUT, step=1, known_rewards=True)
ASKED = Schedule(6, times=np.array([0, 2, 4]), queries=(CRUDE, COUNTS))  # two people are in no batch
WHEREVER = {(k, where) for k in range(3) for where in ("before", "after", "asked", "open", "midway")}

CASES = {
    "exact": (dr.NoPrivacy(), MIXTURE),
    "batches": (dr.Central(mu=1.0, release="batches"), CENTRED),
    "laplace": (dr.Central(epsilon=1.0, release="batches"), MODEL),
    "tree": (dr.Central(mu=1.0, release="tree"), MIXTURE),
    "square root": (dr.Central(mu=1.0, release="square-root"), MODEL),
    "local": (dr.Local(epsilon=1.0, delta=1e-6), CENTRED),
    "answers": (dr.Central(mu=1.0), REQUERY),
    "exact answers": (dr.NoPrivacy(), REQUERY),
    "shuffle": (dr.Shuffle(epsilon=1.0, delta=1e-2), COUNTS),
    "amplified": (dr.Shuffle(epsilon=1.0, delta=1e-2, randomizer="amplified"), COUNTS),
    "batches of none": (dr.NoPrivacy(), COUNTS, ASKED),
    "batches of central": (dr.Central(mu=1.0), COUNTS, ASKED),
    "batches of laplace": (dr.Central(epsilon=1.0), COUNTS, ASKED),
    "batches of vectors": (dr.Local(epsilon=1.0, randomizer="laplace"), COUNTS, ASKED),
    "batches of reports": (dr.Local(epsilon=1.0), COUNTS, ASKED),
    "batches of shuffle": (dr.Shuffle(epsilon=1.0, delta=1e-2), COUNTS, ASKED),
    "batches of amplified": (dr.Shuffle(epsilon=1.0, delta=1e-2, randomizer="amplified"), COUNTS, ASKED),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def start(case: str, randomness: Any = None) -> Any:
    source = randomness or Seeded(5)
    return dr.mechanisms.session_of(proposed(case, source), source)


@functools.cache
def proposed(case: str, source: Any) -> Any:
    """A frozen value: what is calibrated once is the same each time."""
    privatizer, query, schedule = (*CASES[case], EVERY)[:3]
    return privatizer.mechanism(query, schedule, source)


def user(i: int) -> Trajectory:
    rng = np.random.default_rng(i)
    return Trajectory(rng.integers(0, S, H + 1), rng.integers(0, A, H) * 0, rng.integers(0, 2, H) * 1.0)


def shown(release: Any) -> list[Any]:
    """Everything in a release, to be compared bit for bit."""
    out: list[Any] = [release.users, release.number, release.guarantee]
    parts = [release.estimates]
    if release.measurement is not None:
        parts.append(release.measurement.estimates)
    for estimates in parts:
        for name, e in estimates.items():
            out += [name, e.value, e.law, e.covers, e.effective]
    return out


def ask(session: Any, h: int) -> list[Any]:
    found = session.answer(Response(h, np.minimum(VALUES[h + 1], H - h - 1), (0.0, float(H - h))))
    return [found.value, found.law, found.covers]


def play(session: Any, pause: Any, moments: set[tuple[int, str]], keep: str = "") -> list[Any]:
    """Six users in plans of two, one of them absent; ``pause`` at the given moments."""
    out: list[Any] = []
    local = keep == "local"
    coins = (
        (lambda i: SeededRng(Seeded(5).keys.noise, i)) if session._key is not None else lambda i: SecureRng()
    )
    for k in range(3):
        if (k, "before") in moments:
            session = pause(session)
        out += shown(session.release())
        if (k, "after") in moments:
            session = pause(session)
            out += shown(session.release())  # the same again
        if k and getattr(session, "state", {}).get("answers") is not None:
            out += ask(session, H - 1)
            if (k, "asked") in moments:
                session = pause(session)
            for h in reversed(range(H - 1)):
                out += ask(session, h)
        encode = session.begin(Plan(POLICY, 2, dict(CONTEXT)))
        if (k, "open") in moments:
            session = pause(session)
        session.submit(encode(user(2 * k), session.open_plan, coins(2 * k)))
        if (k, "midway") in moments:
            session = pause(session)
            encode = session.open_encoder
        if k == 1 and session.guarantee.trust != "shuffle":
            session.absent()
        else:
            session.submit(encode(user(2 * k + 1), session.open_plan, coins(2 * k + 1)))
    assert local or session.users == 6
    session.close()
    return out


def stopover(folder):
    """Save and restore."""
    count = 0

    def pause(session):
        nonlocal count
        count += 1
        session.save(folder / f"{count}.state")
        with pytest.raises(RuntimeError, match="closed"):
            session.release()
        new = dr.mechanisms.restore(folder / f"{count}.state")
        assert type(new) is type(session)
        assert new.guarantee == session.guarantee
        return new

    return pause


def assert_same(whole: list[Any], parts: list[Any]) -> None:
    assert len(whole) == len(parts)
    for a, b in zip(whole, parts, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, strict=True)
            assert a.flags.writeable == b.flags.writeable
        else:
            assert a == b


def test_bytes_for_a_database_of_ones_own_are_the_files(tmp_path):
    """The same content, the same continuation, no table of what was restored; and the session ends."""

    def pause(session):
        content = taken_out(session)
        with pytest.raises(RuntimeError, match="closed"):
            session.release()
        with pytest.raises(RuntimeError, match="closed"):
            taken_out(session)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.state"
        again = brought_back(content)
        again.save(path)
        values = [saved_state.read(path, CLASSES).values, brought_back(content)]
        assert set(values[0]) == {*saved_state.whole_of(values[1]), "session"}
        with pytest.raises(ValueError, match="damaged"):
            brought_back(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match="is not a saved state"):
            brought_back(b"")
        return values[1]

    whole = play(start("tree"), lambda s: s, WHEREVER)
    assert_same(whole, play(start("tree"), pause, WHEREVER))


@pytest.mark.parametrize("case", CASES)
def test_every_attribute_is_saved_or_derived(case):
    kind, session = type(start(case)), start(case)
    named = [*kind._BOUND, *kind._STATE, *kind._DERIVED]
    assert len(named) == len(set(named))
    made = {name for name in named if isinstance(getattr(kind, name, None), property)}
    assert set(vars(session)) == set(named) - made, "name new attributes in one of its tables"


@pytest.mark.parametrize("case", ["tree", "square root", "local", "answers", "shuffle", "amplified"])
def test_secure_state_comes_back(case, tmp_path):
    """Noise that was drawn, bits that came: nothing is drawn again, and nobody comes twice."""
    session = start(case, Secure())
    session.release()
    encode = session.begin(Plan(POLICY, 2, dict(CONTEXT)))
    reports = [encode(user(i), session.open_plan, SecureRng()) for i in range(2)]
    session.submit(reports[0])
    if case not in ("shuffle", "amplified"):
        session.submit(reports[1])
        before = shown(session.release())
        if case == "answers":
            before += ask(session, H - 1)
        registers = {slot: noise.copy() for slot, noise in session.state["registers"].items()}
        root = session.state["root"] if case == "square root" else ()
        number = session.device.session if case == "local" else 0
        session.save(tmp_path / "a")
        session = dr.mechanisms.restore(tmp_path / "a")
        for old, new in zip(root, session.state["root"], strict=False):
            np.testing.assert_array_equal(old, new)
        assert not root or root[1].shape[0] == 1
        assert number == (session.device.session if case == "local" else 0)
        after = shown(session.release())
        assert_same(before[: len(after)], after)
        assert session.state["registers"].keys() == registers.keys()
        for slot, noise in registers.items():
            np.testing.assert_array_equal(session.state["registers"][slot], noise)
        if case == "answers":
            with pytest.raises(ValueError, match="must be response of step 1"):
                ask(session, H - 1)
            ask(session, H - 2)
        return
    session.save(tmp_path / "a")
    session = dr.mechanisms.restore(tmp_path / "a")
    with pytest.raises(ValueError, match="came before"):
        session.submit(reports[0])
    assert session.refused["replayed"] == 1
    session.submit(reports[1])
    assert session.release().users == 2


def test_a_secure_batch_that_is_open_comes_back(tmp_path):
    """With its people; of closed batches their sizes and the last release are known."""
    session = start("batches of central", Secure())
    first = session.begin(Plan(POLICY, 2))
    for i in range(2):
        session.submit(first(user(i), session.open_plan, SecureRng()))
    before = shown(session.release())
    encode = session.begin(Plan(POLICY, 2))
    session.submit(encode(user(2), session.open_plan, SecureRng()))
    held = session.state["inner"].state["cells"].copy()
    assert held.any()
    session.save(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    session = dr.mechanisms.restore(tmp_path / "a")
    np.testing.assert_array_equal(session.state["inner"].state["cells"], held)
    assert (session.users, session.state["open"], session.query.step) == (3, 1, None)
    with pytest.raises(RuntimeError, match="users of the open plan not submitted yet: 1"):
        session.release()
    session.submit(encode(user(3), session.open_plan, SecureRng()))
    with pytest.raises(RuntimeError, match="no plan is open"):
        session.submit(encode(user(3), session.open_plan, SecureRng()))
    after = shown(session.release())
    assert after[:2] == [4, 2]
    assert before[:2] == [2, 1]
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(RuntimeError, match="or a copy of it, was restored"):
        dr.mechanisms.restore(tmp_path / "b")


QUESTIONS = [
    Question(kind="gram", step=2, mu=0.3),
    Question(kind="pair", step=1, high=3.0, mu=0.3, half=0),
    Question(kind="response", step=0, high=3.0, mu=0.3, half=1),
]


def asked(randomness: Any, pause: Any, exact: bool = False, **how: Any) -> list[Any]:
    """Stored people and three planned questions; ``pause`` before each call."""
    plan = [replace(question, mu=None) for question in QUESTIONS] if exact else QUESTIONS
    session = ResponseSession(LAYOUT, PHI, plan, randomness, episodes=2, **how)
    out: list[Any] = []
    for part in ((0, 0, 1), (1, 2)):
        session = pause(session)
        some = [user(10 * who + k) for k, who in enumerate(part)]
        session.submit_many(
            Trajectories(*(np.stack([vars(one)[name] for one in some]) for name in vars(some[0]))), part
        )
    session.absent(2)
    for ask_it in (lambda s: s.gram(2), lambda s: s.pair(1, VALUES[2]), lambda s: s.response(0, VALUES[1])):
        session = pause(session)
        found = ask_it(session)
        out += [session.users, session.asked, session.guarantee, found.gram, found.vector, found.vector_scale]
    session = pause(session)
    with pytest.raises(RuntimeError, match="questions are spent"):
        session.gram(2)
    return out


@pytest.mark.parametrize("dense", [True, False], ids=["counts", "records"])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "gaussian"])
def test_answers_continued_are_the_uninterrupted_ones(dense, exact, tmp_path, monkeypatch):
    if not dense:
        monkeypatch.setattr(stored, "MOST_CELLS", 0)
    whole = asked(Seeded(5), lambda session: session, exact)
    names = itertools.count()

    def again(session):
        name = tmp_path / f"{next(names)}"
        session.save(name)
        with pytest.raises(RuntimeError, match="closed"):
            session.gram(2)
        return dr.mechanisms.restore(name)

    assert_same(whole, asked(Seeded(5), again, exact))
    assert next(names) == 6


def test_secure_answers_are_spent_and_halves_stay(tmp_path):
    """The coin that puts a person into a half is drawn once; a question is asked once."""
    session = ResponseSession(LAYOUT, PHI, QUESTIONS, Secure())
    people = Trajectories(np.zeros((50, H + 1), int), np.zeros((50, H), int), np.ones((50, H)))
    session.submit_many(people)
    session.gram(2)
    halves = session._stored._cells.copy()
    session.save(tmp_path / "a")
    session = dr.mechanisms.restore(tmp_path / "a")
    np.testing.assert_array_equal(session._stored._cells, halves)
    assert 0 < halves[0, 0].sum() < 50
    assert session.asked == 1
    with pytest.raises(ValueError, match="must be pair of step 1"):
        session.gram(2)
    with pytest.raises(RuntimeError, match="no user can be added"):
        session.submit_many(people)


def test_every_attribute_of_stored_answers_is_saved_or_derived():
    session = ResponseSession(LAYOUT, PHI, QUESTIONS, Seeded(5))
    kind = ResponseSession
    named = [*kind._BOUND, *kind._STATE, *kind._DERIVED]
    assert len(named) == len(set(named))
    assert set(vars(session)) == set(named) - {"_people"}


def test_a_batch_too_small_stays_too_small(tmp_path):
    """A restore lets out nothing of fewer messages than were accounted for."""
    session = start("shuffle")
    first = shown(session.release())
    encode = session.begin(Plan(POLICY, 2))
    session.submit(encode(user(0), session.open_plan, SeededRng(Seeded(5).keys.noise, 0)))
    session.save(tmp_path / "a")
    session = dr.mechanisms.restore(tmp_path / "a")
    session.absent()
    with pytest.raises(BatchTooSmall):
        session.release()
    session.save(tmp_path / "b")
    assert_same(first, shown(dr.mechanisms.restore(tmp_path / "b").release()))


@pytest.mark.parametrize("case", ["answers", "shuffle", "batches of central"])
def test_damaged_foreign_and_replayed_files_are_refused(case, tmp_path, folder, monkeypatch):
    session = start(case)
    session.release()
    encode = session.begin(Plan(POLICY, 2, dict(CONTEXT)))
    session.submit(encode(user(0), session.open_plan, SeededRng(Seeded(5).keys.noise, 0)))
    path, bad = tmp_path / "a", tmp_path / "bad"
    session.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in [*range(0, len(content), len(content) // 20), len(content) - 1]:
        bad.write_bytes(content[:size])
        with pytest.raises(ValueError, match="path = "):
            dr.mechanisms.restore(bad)
    for at in rng.integers(0, len(content), 40).tolist():
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(changed)
        with pytest.raises(ValueError, match="path = "):
            dr.mechanisms.restore(bad)
    assert not folder.exists()  # nothing was recorded
    with monkeypatch.context() as patched:  # what says it is of another kind, or of one to come
        patched.setattr(ChannelSession, "_kind", ResponseSession._kind)
        start(case).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"path = .* was written by another version \(_"):
        dr.mechanisms.restore(tmp_path / "other")
    with monkeypatch.context() as patched:
        patched.setattr(ChannelSession, "_kind", "sums to come")
        start(case).save(tmp_path / "newer")
    with pytest.raises(ValueError, match="path = .* 'sums to come'"):
        dr.mechanisms.restore(tmp_path / "newer")
    copy = shutil.copy(path, tmp_path / "copy")
    assert isinstance(dr.mechanisms.restore(path), ChannelSession)
    with pytest.raises(RuntimeError, match="or a copy of it, was restored"):
        dr.mechanisms.restore(copy)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.statistics)])
def test_a_field_of_another_kind_is_refused(case, every, tmp_path, folder):
    """With a checksum that fits: a session is made of values of the kinds that it has.

    Two of six strange values for a field, by turns; in the slow suite all of them.
    """
    session = start(case)
    session.release()
    encode = session.begin(Plan(POLICY, 2, dict(CONTEXT)))
    session.submit(encode(user(0), session.open_plan, SeededRng(Seeded(5).keys.noise, 0)))
    path = tmp_path / "a"
    session.save(path)
    content, prelude = path.read_bytes(), saved_state._PRELUDE
    magic, version, length = prelude.unpack(content[: prelude.size])
    header = json.loads(content[prelude.size : prelude.size + length])
    strange = ("x", -2, 2**64, [1], {"map": [[1, 2]]}, {"Layout": {"states": 1, "actions": 1, "horizon": 1}})
    values = header["values"]
    table = dict(values.get("_table", {"map": []})["map"])
    for turn, name in enumerate([*values, *table], [*CASES].index(case)):
        for value in strange if every else strange[turn % 3 :: 3]:
            if name == "stored_users" and case != "answers" and isinstance(value, dict) and "map" in value:
                continue  # nobody is stored, so nothing is looked at
            if name == "registers" and isinstance(value, dict) and "map" in value:
                continue  # by numbers of draws, which only a run knows
            inside = [[key, value if key == name else own] for key, own in table.items()]
            changed = {**header, "values": {**values, name: value}}
            if name in table:
                changed["values"] = {**values, "_table": {"map": inside}}
            text = json.dumps(changed).encode()
            whole = prelude.pack(magic, version, len(text)) + text + content[prelude.size + length : -32]
            path.write_bytes(whole + hashlib.sha256(whole).digest())
            with pytest.raises(ValueError, match="path = "):
                dr.mechanisms.restore(path)
    assert not folder.exists()  # nothing was recorded
    path.write_bytes(content)
    dr.mechanisms.restore(path)


def test_a_renamed_class_keeps_its_name_in_files():
    form = SessionConfig(2, 1, 2, (Family("visits", 2, COIN // 2),))
    written = saved_state._encode("form", form, CLASSES, [])
    assert list(written) == ["Form"]
    assert saved_state._decode(written, CLASSES, []) == form
