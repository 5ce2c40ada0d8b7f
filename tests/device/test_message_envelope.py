"""The envelope of every message: its bytes, what a reader refuses, and that a message counts once."""

import dataclasses
import hashlib
import random
import zlib
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from scipy import stats

import discreet as dr
from discreet import envs
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectory
from discreet.device.count_device import CountDevice
from discreet.device.discrete_noise import ExactCoins
from discreet.device.linear_device import LinearDevice
from discreet.device.message_envelope import (
    HEADER,
    KINDS,
    TAIL,
    Envelope,
    MessageRejected,
    drawn_nonce,
    opened,
)
from discreet.device.randomized_response_device import ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder, SystemCoins
from discreet.device.shuffle_payload import SessionConfig
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.linear.linear_queries import MixtureQuery
from discreet.mechanisms.restore_session import restore
from discreet.mechanisms.seeded_rng import SeededRng

WORLD = envs.linear_mixture(states=3, actions=2, horizon=3, models=2, seed=3)
MASK = np.array([[True, True], [True, False], [True, True]])
LAYOUT = Layout(3, 2, 3, MASK)
QUERY = CountQuery(LAYOUT, center_rewards=True)
POLICY = np.zeros((3, 3), np.int64)
MIXED = np.where(MASK, 1.0, 0.0) / MASK.sum(axis=1, keepdims=True) * np.ones((3, 1, 1))
LIFE = Trajectory(np.array([0, 1, 2, 0]), np.zeros(3, np.int64), np.array([1.0, 0.25, 0.5]))
CONTEXT = {"values": np.random.default_rng(2).uniform(size=(4, 3)) * np.arange(3, -1, -1)[:, None]}
HEAD = Envelope("sums", 7, bytes(range(16)), bytes(range(16, 32)), b"payload")


def linear(number: int, device: Any, coins: Any) -> bytes:
    return device(number, CONTEXT, LIFE.states, LIFE.actions, LIFE.rewards, coins)


def vector(number: int, device: Any, coins: Any) -> bytes:
    return device(number, LIFE.states, LIFE.actions, LIFE.rewards, coins)


def report(number: int, device: Any, coins: Any) -> bytes:
    return device(number, POLICY, LIFE.states, LIFE.actions, LIFE.rewards, coins)


def bits(number: int, device: Any, coins: Any) -> bytes:
    assert device.plan == number
    return device(LIFE.states, LIFE.actions, LIFE.rewards, coins)


LINEAR = MixtureQuery(layout=WORLD.layout, features=WORLD.features)
SENDERS: dict[str, tuple[Any, Any, Any]] = {
    "laplace": (dr.Local(epsilon=4.0, randomizer="laplace"), QUERY, vector),
    "gaussian": (dr.Local(rho=1.0), QUERY, vector),
    "krr": (dr.Local(epsilon=4.0, randomizer="krr"), QUERY, report),
    "subset": (dr.Local(epsilon=4.0, randomizer="subset"), QUERY, report),
    "oue": (dr.Local(epsilon=4.0, randomizer="oue"), QUERY, report),
    "coins": (dr.Shuffle(epsilon=1.0, delta=1e-4), QUERY, bits),
    "amplified": (dr.Shuffle(epsilon=1.0, delta=1e-4, randomizer="amplified"), QUERY, report),
    "linear": (dr.Local(rho=1.0), LINEAR, linear),
    "linear laplace": (dr.Local(epsilon=4.0), LINEAR, linear),
}  # fmt: skip


def started(name: str, source: Any = None, users: int = 4) -> Any:
    """A session whose first plan is open."""
    privatizer, query, _ = SENDERS[name]
    session = privatizer.start(
        query, Schedule(9, times=np.array([0, 4, 8])), source or Secure(reward_grid=16)
    )
    session.release()
    session.begin(Plan(POLICY, users, CONTEXT))
    return session


def message(name: str, session: Any, seed: int) -> bytes:
    coins = ExactCoins(random.Random(seed).randrange)
    sent: bytes = SENDERS[name][2](session.open_plan.number, session.device, coins)
    return sent


# ------------------------------------------------------------------------------ the bytes
def test_the_bytes_are_as_they_are_documented() -> None:
    """Written here by hand, as another language would."""
    data = (
        b"dscr"
        + bytes([1, 4, 0, 0])
        + (7).to_bytes(8, "little")
        + bytes(range(32))
        + b"\7\0\0\0"
        + b"payload"
    )
    assert HEAD.to_bytes() == data + zlib.crc32(data).to_bytes(4, "little")
    assert Envelope.from_bytes(HEAD.to_bytes()) == HEAD
    assert [Envelope(kind, 0, bytes(16), bytes(16), b"").to_bytes()[5] for kind in KINDS] == [1, 2, 3, 4]
    most = dataclasses.replace(HEAD, plan=2**64 - 1, payload=b"")
    assert Envelope.from_bytes(most.to_bytes()) == most
    assert len(most.to_bytes()) == HEADER + TAIL
    assert "payload" not in repr(HEAD)


def crc32(data: bytes) -> int:
    """As PNG describes it: bit by bit, the polynomial 0xEDB88320."""
    check = 0xFFFFFFFF
    for byte in data:
        check ^= byte
        for _ in range(8):
            check = (check >> 1) ^ (0xEDB88320 if check & 1 else 0)
    return check ^ 0xFFFFFFFF


def test_the_check_is_the_one_that_is_named() -> None:
    assert crc32(b"123456789") == 0xCBF43926
    sent = HEAD.to_bytes()
    assert crc32(sent[:-4]) == int.from_bytes(sent[-4:], "little")


@pytest.mark.parametrize("name", SENDERS)
def test_whatever_is_not_a_message_is_refused(name: str) -> None:
    """Every bit turned, every beginning, additions, random ones, and forged ones whose check fits."""
    session = started(name)
    good, device = message(name, session, 1), session.device

    def read(data: bytes) -> None:
        session.submit(Message(session.open_plan.number, message=data))

    own = random.Random(5)
    for at in range(8 * min(len(good), HEADER + 40)):
        broken = bytearray(good)
        broken[at // 8] ^= 1 << at % 8
        with pytest.raises(MessageRejected):
            Envelope.from_bytes(bytes(broken))
    for size in range(len(good)):
        with pytest.raises(MessageRejected):
            Envelope.from_bytes(good[:size])
    for _ in range(300):
        broken = bytearray(good)
        for at in own.sample(range(8 * len(good)), own.randint(1, 3)):
            broken[at // 8] ^= 1 << at % 8
        cut = own.randint(0, len(good))
        for bad in (
            bytes(broken),
            good + own.randbytes(own.randint(1, 9)),
            good[:cut] + own.randbytes(4),
            b"",
        ):
            with pytest.raises(ValueError, match="message"):
                read(bad)
    # forged: a check that fits, and a payload of no device or of one that might be
    whole, reasons = Envelope.from_bytes(good), []
    for _ in range(300):
        payload = bytearray(whole.payload)
        way = own.randint(0, 3)
        if way == 0:
            payload = payload[: own.randint(0, len(payload))]
        elif way == 1:
            payload += own.randbytes(own.randint(1, 9))
        else:
            for at in own.sample(range(len(payload)), min(len(payload), own.randint(1, 6))):
                payload[at] = own.randint(0, 255)
        forged = dataclasses.replace(whole, payload=bytes(payload), nonce=own.randbytes(16)).to_bytes()
        try:
            if isinstance(device, ReportDevice):
                device.read(session.open_plan.number, forged, SENDERS[name][0].trust == "shuffle")
            elif isinstance(device, ShuffleEncoder):
                from discreet.device.shuffle_payload import read as read_bits

                read_bits(device.form, session.open_plan.number, forged)
            else:
                device.read(session.open_plan.number, forged)
        except MessageRejected as error:
            reasons.append(error.reason)
    assert len(reasons) > 100
    assert set(reasons) == {"malformed"}
    assert session.users == 0
    for value in (None, 3, bytearray(good), memoryview(good), np.frombuffer(good, np.uint8)):
        with pytest.raises(MessageRejected):
            Envelope.from_bytes(value)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"kind": "nothing"}, "kind"), ({"plan": -1}, "plan"), ({"plan": 2**64}, "plan"),
        ({"plan": 1.0}, "plan"),
        ({"form": bytes(8)}, "form"), ({"nonce": bytes(15)}, "nonce"), ({"payload": "text"}, "payload"),
        ({"nonce": bytearray(16)}, "nonce"),
    ],
)  # fmt: skip
def test_bad_parts_are_refused(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        dataclasses.replace(HEAD, **wrong)


def test_what_is_refused_first() -> None:
    sent = HEAD.to_bytes()
    assert opened(sent, "sums", HEAD.form, 7) == HEAD
    for given, reason in (
        (("bits", HEAD.form, 7), "foreign"), (("sums", bytes(16), 8), "foreign"),
        (("sums", HEAD.form, 8), "late"),
    ):  # fmt: skip
        with pytest.raises(MessageRejected) as caught:
            opened(sent, *given)
        assert caught.value.reason == reason
    with pytest.raises(MessageRejected) as caught:
        opened(sent[:-1], "bits", bytes(16), 8)
    assert caught.value.reason == "malformed"


# ------------------------------------------------------------------------------ once
@pytest.mark.parametrize("name", SENDERS)
def test_a_message_counts_once_also_after_a_restore(name: str, tmp_path: Any) -> None:
    session = started(name)
    first, second = message(name, session, 1), message(name, session, 2)
    assert Envelope.from_bytes(first).nonce != Envelope.from_bytes(second).nonce

    def sent_again(to: Any, data: bytes) -> str:
        with pytest.raises(MessageRejected) as caught:
            to.submit(Message(to.open_plan.number, message=data))
        return caught.value.reason

    session.submit(Message(1, message=first))
    assert sent_again(session, first) == "replayed"
    assert session.users == 1
    device = session.device
    session.save(tmp_path / "state")
    again = restore(tmp_path / "state", tmp_path / "table")
    assert again.device.digest == device.digest if not isinstance(device, ShuffleEncoder) else True
    assert sent_again(again, first) == "replayed"
    again.submit(Message(1, message=second))
    assert sent_again(again, second) == "replayed"
    assert again.users == 2
    # the same payload by another nonce is another message; under another plan it is late
    other = dataclasses.replace(Envelope.from_bytes(first), nonce=bytes(16))
    again.submit(Message(1, message=other.to_bytes()))
    assert again.users == 3
    again.absent()
    if SENDERS[name][0].trust != "shuffle":
        again.release()
        again.begin(Plan(POLICY, 2, CONTEXT))
        assert sent_again(again, first) == "late"
        reopened = dataclasses.replace(Envelope.from_bytes(first), plan=2).to_bytes()  # (plan, nonce) is new
        again.submit(Message(2, message=reopened))
        assert sent_again(again, reopened) == "replayed"


@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("name", SENDERS)
def test_what_comes_when_all_users_have_come_is_refused_by_a_reason(name: str, absent: int) -> None:
    """A copy counts already, whoever came meanwhile; what is new finds no place, absent people's neither."""
    privatizer = SENDERS[name][0]
    session = started(name)
    messages = [message(name, session, seed) for seed in range(5)]
    late = dataclasses.replace(Envelope.from_bytes(messages[0]), plan=9).to_bytes()
    for data in messages[: 4 - absent]:
        session.submit(Message(1, message=data))
    if absent:
        session.absent()

    def reason(data: bytes, plan: int = 1) -> str:
        with pytest.raises(MessageRejected) as caught:
            session.submit(Message(plan, message=data))
        return caught.value.reason

    for _ in range(2):
        assert [reason(data) for data in (messages[0], messages[4], late, messages[1][:-1])] == [
            "replayed", "full", "late", "malformed",
        ]  # fmt: skip
    assert session.users == 4
    session.release() if not (absent and privatizer.trust == "shuffle") else session.close()
    if not absent:
        assert reason(messages[0]) == ("late" if privatizer.trust == "shuffle" else "replayed")
        session.begin(Plan(POLICY, 4, CONTEXT))
        assert reason(messages[0]) in ("late", "foreign")
        assert session.users == 4


@pytest.mark.parametrize("name", SENDERS)
def test_nothing_is_late_before_the_first_plan(name: str) -> None:
    data = message(name, started(name), 0)
    privatizer, query, _ = SENDERS[name]
    session = privatizer.start(query, Schedule(9, times=np.array([0, 4, 8])), Secure(reward_grid=16))
    with pytest.raises(RuntimeError, match="no plan is open"):
        session.submit(Message(1, message=data))


@pytest.mark.parametrize("name", SENDERS)
def test_a_message_of_another_session_is_foreign(name: str) -> None:
    session, other = started(name), started(name)
    with pytest.raises(MessageRejected) as caught:
        session.submit(Message(1, message=message(name, other, 1)))
    assert caught.value.reason == "foreign"


@pytest.mark.parametrize("name", ["laplace", "gaussian", "linear"])
def test_numbers_of_the_sessions_own_encoder_have_no_nonce(name: str) -> None:
    """Simulations within one process: the same array twice is two people."""
    session = started(name)
    numbers = session.open_encoder(LIFE, session.open_plan, ExactCoins()).message
    for _ in range(2):
        session.submit(Message(1, message=numbers))
    assert session.users == 2


@pytest.mark.parametrize("name", ["laplace", "subset", "linear"])
def test_an_interrupt_adds_no_message_twice(name: str) -> None:
    """Ctrl-C at every line of a call, then the same bytes again: at most one of them is added."""
    sent: bytes | None = None
    at, stopped, ends = 0, True, set()
    state = started(name)
    shape = state.state["cells"].shape
    state.close()
    while stopped:
        session = started(name)
        device = session.device
        sent = message(name, session, 1)
        stopped = interrupted(
            lambda s=session, m=sent: s.submit(Message(1, message=m)), at,
            files=("core/session.py", "mechanisms/local/message_inbox.py",
            "mechanisms/local/noisy_vector_session.py",
                   "mechanisms/local/randomized_response_session.py", "mechanisms/linear/linear_session.py"),
        )  # fmt: skip
        once = np.zeros(shape)
        if name != "subset":
            once = device.read(1, sent)[1].astype(float)
        else:
            alone = started(name)
            alone.state["session"] = session.state["session"]
            alone.submit(Message(1, message=sent))
            once = alone.state["cells"]
        try:
            session.submit(Message(1, message=sent))
            ends.add("taken now")
        except MessageRejected as refusal:
            ends.add(refusal.reason)
        assert session.users <= 1, at
        found = session.state["cells"]
        assert np.array_equal(found, once) or not found.any(), at
        at += 1
    assert ends == {"taken now", "replayed"}
    assert at > 8


# ------------------------------------------------------------------------------ the nonce
def test_a_nonce_is_drawn_last_and_by_the_devices_own_coins() -> None:
    """The payload is what it would be without one: equal coins, equal payloads; other nonces each time."""

    class Counting(ExactCoins):
        def __init__(self) -> None:
            super().__init__(random.Random(3).randrange)
            self.drawn = 0

        def words(self, size: int) -> Any:
            self.drawn += size
            return super().words(size)

        def laplace(self, *given: Any) -> Any:
            assert not self.drawn
            return super().laplace(*given)

        def normal(self, *given: Any) -> Any:
            assert not self.drawn
            return super().normal(*given)

        def rounded(self, *given: Any) -> Any:
            assert not self.drawn
            return super().rounded(*given)

        def below(self, n: int) -> int:
            assert not self.drawn or n == 2**64
            return super().below(n)

    for name in ("laplace", "gaussian", "krr", "subset", "oue", "linear"):
        session, coins = started(name), Counting()
        sent = Envelope.from_bytes(SENDERS[name][2](1, session.device, coins))
        assert coins.drawn == 2
        encoder, numbers = session.open_encoder, None
        numbers = encoder(LIFE, session.open_plan, ExactCoins(random.Random(3).randrange)).message
        if name in ("krr", "subset", "oue"):
            assert np.frombuffer(sent.payload, "<i4").tolist() == numbers.tolist()
        else:
            assert np.array_equal(session.device.read(1, sent.to_bytes())[1], numbers)


def test_nonces_of_the_system_are_uniform() -> None:
    """4000 bytes of 250 nonces by chi-squared, none twice; false alarm 2e-9."""
    nonces = [drawn_nonce(SystemCoins()) for _ in range(250)]
    assert len(set(nonces)) == 250
    seen = np.bincount(np.frombuffer(b"".join(nonces), np.uint8), minlength=256)
    assert 1e-9 < stats.chi2.cdf(float(((seen - 15.625) ** 2 / 15.625).sum()), 255) < 1 - 1e-9
    one, two = (drawn_nonce(ExactCoins(random.Random(1).randrange)) for _ in range(2))
    assert one == two
    one, two, other = (drawn_nonce(SeededRng(Seeded(4).keys.noise, user)) for user in (0, 0, 1))
    assert one == two != other


def test_what_leaves_the_shuffler_has_no_nonce() -> None:
    """Its output is a function of the payloads: other nonces and another order change nothing."""
    from discreet.mechanisms.shuffle.shuffle_session import Shuffler

    session = started("coins")
    form = session.device.form
    sent = [Envelope.from_bytes(message("coins", session, seed)) for seed in range(4)]
    found = []
    for turn in range(2):
        shuffler = Shuffler(form, 4)
        shuffler.open(1, 4)
        for i, one in enumerate(sent[:: 1 - 2 * turn]):
            shuffler.receive(dataclasses.replace(one, nonce=bytes([turn, i] * 8)).to_bytes())
        found.append(shuffler.output())
    assert np.array_equal(found[0].ones, found[1].ones)
    assert np.array_equal(found[0].bits, found[1].bits)


# ------------------------------------------------------------------------------ forms
def every_form() -> list[Any]:
    found = []
    for name in SENDERS:
        device = started(name).device
        found.append(device.form if isinstance(device, ShuffleEncoder) else device)
    found.append(CountDevice(2, 2, 3, (("transition_counts", 1.5),), "laplace", stationary=True))
    return found


@pytest.mark.parametrize("form", every_form(), ids=lambda form: type(form).__name__)
def test_a_form_is_read_as_it_was_published(form: Any) -> None:
    published = form.to_bytes()
    again = type(form).from_bytes(published)
    assert again.to_bytes() == published
    assert again.digest == form.digest == hashlib.sha256(published).digest()[:16]
    assert len(form.digest) == 16
    if not isinstance(form, LinearDevice):  # which holds arrays
        assert again == form
    for name in ("session", "horizon"):
        if hasattr(form, name):
            assert dataclasses.replace(form, **{name: getattr(form, name) + 1}).digest != form.digest
    for bad in (
        b"",
        published[:-1],
        published + b"\0",
        b"dscr" + published[4:],
        published[:40],
        published[1:],
    ):
        with pytest.raises(ValueError, match="published"):
            type(form).from_bytes(bad)
    own, others = random.Random(3), 0
    for _ in range(300):  # whatever is broken is an error in our words, or another form
        broken = bytearray(published)
        for at in own.sample(range(min(len(broken), 600)), own.randint(1, 3)):
            broken[at] ^= own.randint(1, 255)
        try:
            others += type(form).from_bytes(bytes(broken)).digest != form.digest
        except ValueError:
            others += 1
    assert others == 300


def test_a_form_is_of_its_own_kind() -> None:
    for form in every_form():
        for kind in (SessionConfig, CountDevice, ReportDevice, LinearDevice):
            if kind is not type(form):
                with pytest.raises(ValueError, match="published"):
                    kind.from_bytes(form.to_bytes())


@pytest.mark.parametrize("name", ["krr", "subset", "oue", "coins", "amplified"])  # others need exact noise
def test_a_message_of_another_seeded_run_or_batch_is_foreign(name: str) -> None:
    """Equal seeds publish equal forms; runs and batches of one seed do not take each other's messages."""
    own = Seeded(3)
    session = started(name, own)
    copies, others = [own, Seeded(3)], [Seeded(4), Seeded(3, 1), own.of_batch(0), own.of_batch(1)]
    for source in copies + others:
        other = started(name, source)
        sent = message(name, session, 1) if source in copies else message(name, other, 1)
        if source in others:
            with pytest.raises(MessageRejected) as caught:
                session.submit(Message(1, message=sent))
            assert caught.value.reason == "foreign"
        else:
            other.submit(Message(1, message=sent))
