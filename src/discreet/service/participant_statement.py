"""Statement for participants: the guarantee, the data that each party sees, and facts that noise does not
hide.
"""

from __future__ import annotations

from typing import Any

from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.published_device import device_from_bytes
from discreet.service.batch_sums import ShuffledBatches
from discreet.service.study_config import Study

__all__ = ["SEES", "SIDE_CHANNELS", "make_participant_statement"]

SEES = {
    "joint": (
        "You must trust the operator. The operator's server receives your whole record (every state or "
        "context, action and reward). It keeps the record until your batch is complete, and removes it once "
        "it is counted.",
        "The server keeps exact sums of all records, which are as private as the records.",
        "All others see only releases (noisy sums), policies, and what is computed from them. The guarantee "
        "covers these.",
    ),
    "local": (
        "You do not have to trust the operator with your record. Your device randomizes it and sends one "
        "message. The guarantee covers this message, against the operator and all others.",
        "The operator sees your message. If a list of tickets was kept, the operator can tell from the "
        "ticket to whom it was issued.",
    ),
    "shuffle": (
        "You do not have to trust the operator with your record. Your device adds random noise to it and "
        "sends one message to the shuffler, which another operator must run. The guarantee covers the "
        "output of the shuffler: sums of whole batches.",
        "The shuffler sees your message, the ticket that came with it, and the address that it came from. "
        "It stores neither address nor time. It keeps the message until its batch is complete. Then it sums "
        "the messages of the batch, removes them, and sends the sum to the operator. If a batch has too few "
        "messages, it sends no sum.",
        "The operator sees sums of batches, and no tickets. Therefore a person who gave you your ticket "
        "cannot identify your message.",
        "If shuffler and operator cooperate, or are the same, they see your message. If a list of tickets "
        "was kept, they also see whose message it is.",
        "All others see only releases and policies, which are computed from the sums.",
    ),
}
_COUNTS = (
    "The operator, and anyone who observes the network, can see who takes part, when a place was taken, "
    "when an answer came, and that no answer came in time. The noise hides what you did, but not that you "
    "took part. The service sums answers in the order of the tickets, not in the order of their arrival. A "
    "release is made when the last person of its batch has answered or is absent, and everyone can see when "
    "that was. The operator's page shows how many people have answered, and how many are absent. These "
    "counts have no noise, because the guarantee treats the number of participants as public. If what "
    "happened to you affects whether you answer, these counts can reveal it."
)
_SIZES = (
    "Under central trust, the size of an answer and the time until it arrives can depend on what happened "
    "to you, because its numbers are written as text. Send it at a time that does not depend on your "
    "actions.",
    "Under local and shuffle trust, no guarantee covers the time that a device needs to randomize. Send the "
    "message some time after it was made.",
    "The time until the next plan depends on how many people took part, which is public.",
)
SIDE_CHANNELS = (_COUNTS, *_SIZES)


_MEANING = (
    "If you took a place and have not answered in this time, you count as absent. A release is made when the "
    "planned number of people have answered or are absent, whatever plan they follow. So it waits for one "
    "particular person only if nobody else has a place. If no place is free, you can follow the published "
    "plan; then you send nothing."
)
_TIMES = (
    "The guarantee covers what you did. It does not cover when you answer, or whether you answer. Your "
    "answer counts in the batch that is open when it arrives. If the time of your answer depends on what "
    "happened to you, people who answer around that time can fall into other batches and get other plans, "
    "and what is published can show this. An earlier plan stays published while somebody who took a place in "
    "it has not answered. Send your answer at a time that does not depend on what happened."
)
_BY_CLOCK = (
    "The guarantee covers what you did, when you answer, and whether you answer. Releases are made at fixed "
    "times. An answer counts in the first release after it arrives. Nobody else's place, plan or batch "
    "depends on it. The numbers of answers and of absent people are not published, because they have no "
    "noise. The operator sees them.",
    "Noise does not hide that you took a place, and when. The operator, and anyone who observes the network, "
    "can see this, and also when your device sends something. The guarantee covers what is published. If "
    "what happened to you affects when you answer, an observer of the network can learn it: send your answer "
    "at a time that does not depend on what happened.",
)
_ACTS = (
    "The operator can pause the study, and can give everyone more time to answer. The guarantee assumes that "
    "these decisions do not depend on what people sent{}. Everyone can see them (GET /log)."
)
_CLOCK_MEANING = (
    "If you took a place and have not answered in this time, you count as absent. Releases are made every {} "
    "seconds, and wait for nobody. A place is free until the places of the current plan are taken. If no "
    "place is free, you can follow the published plan; then you send nothing."
)
_ALL_MEANING = (
    "A person who took a place and has not answered in this time counts as absent. The place is not given to "
    "another person. Therefore what happens to people does not affect who is in which batch, except through "
    "the times of their answers: the next batch begins when this one is complete."
)
_AGAIN = (
    "Each person takes part at most {times}, at least {apart} apart. The guarantee is about everything that "
    "one person sent, together. It does not hide at which releases you took part. It assumes that you have "
    "only one pseudonym. The operator gave your pseudonym to the server, and can know who you are. The "
    "server keeps a code of it, how often you took part, and the batch of the last time. An answer and a "
    "withdrawal count as taking part. A place that ends without an answer does not. If you cannot take part "
    "now, the answer names the release from which you can."
)
_UNTIL = (
    "With your ticket, you can withdraw until your batch is complete (POST /withdrawals). Your message is "
    "then removed, and you count as absent. The receipt is signed. Afterwards, a release cannot be undone. "
)
_KEPT = "Backups of the server can contain your message for as long as they are kept."
_HOLDS = {
    "joint": "The server then holds only exact sums of all records, in which one person cannot be found or "
    "removed, and releases. ",
    "local": "The server then holds only sums of randomized messages, and releases. ",
    "shuffle": "The shuffler then holds no message. The server holds only sums of batches, and releases. ",
}


def _side_channels(rule: str) -> tuple[str, ...]:
    """Return the facts that noise does not hide, given the rule that closes batches."""
    if rule == "clock":
        return (*_SIZES[:-1], _ACTS.format(", or on when or whether they answered"), *_BY_CLOCK)
    return (*SIDE_CHANNELS, _ACTS.format(""), *([_TIMES] if rule == "resolved" else ()))


def _meaning(study: Study, rule: str) -> str:
    """Return the text about what happens if a user does not answer in time."""
    if rule == "clock":
        return _CLOCK_MEANING.format(f"{study.every:,g}")
    return _MEANING if rule == "resolved" else _ALL_MEANING


def message_alone(study: Study) -> MessageGuarantee:
    """Return the guarantee of a single message without a trusted shuffler.

    If the guarantee differs between batches, the weakest one is returned.
    """
    batches = ShuffledBatches(study, 0)
    every = {batches.form(int(n)) for n in [0, *study.mechanism.ends[:-1]]}  # type: ignore[union-attr]
    found = [device_from_bytes(form).guarantee for form in every]
    return max(found, key=lambda one: (one.epsilon or 0.0, one.shows))


def _participation(study: Study) -> dict[str, Any]:
    """Return the entry about users who return; empty if a user takes part once."""
    m, s = study.participations, study.separation
    if m == 1:
        return {}
    words = _AGAIN.format(times=f"{m} times", apart="one release" if s == 1 else f"{s} releases")
    return {"participation": {"most": m, "separation_releases": s, "meaning": words}}


def _prior(study: Study) -> dict[str, str]:
    """Return the entry about the learner's prior; empty without a prior."""
    note = getattr(study.learner, "privacy_note", lambda _: None)(study.spec)
    return {"prior": note} if note else {}


def make_participant_statement(
    study: Study, ledger: Any, key: str, close: str | None = None, programs: Any = ()
) -> dict[str, Any]:
    """Return the statement for participants as JSON values, including its sentences.

    Parameters
    ----------
    ledger : the study's reservation in the ledger; None if the study uses no ledger.
    key : public key of the statement's signature.
    close : rule with which the database was begun; None: the rule of a new database.
    programs : versions of the library that served the study.
    """
    rule = close or study.close_rule
    guarantee = study.stated or study.guarantee.to_dict()
    return {
        "study": study.name,
        "identity": study.identity,
        "trust": study.trust,
        "first": guarantee["statement"],
        "guarantee": guarantee,
        "who_sees_what": [*SEES[study.trust], *([message_alone(study).statement] if study.shuffled else ())],
        "shuffler": None if study.shuffler is None else dict(study.shuffler),
        "side_channels": list(_side_channels(rule)),
        "rehearsal": study.simulated or study.randomness.kind == "seeded",
        "world": {**study.sizes, "users": study.users, "stationary": study.stationary},
        "learner": str(study.table.get("learner", {}).get("name", type(study.learner).__name__)),
        **_prior(study),
        "releases": [int(n) for n in study.times],
        "every_seconds": study.every,
        "absent": {
            "answer_within_seconds": study.answer_within,
            "closes_after_seconds": study.closes_after,
            "meaning": _meaning(study, rule),
        },
        **_participation(study),
        "withdrawal": f"{_UNTIL}{_HOLDS[study.trust]}{_KEPT}",
        "ledger": ledger
        or "This study uses no ledger: the cost of other releases about the same people is not known here.",
        "key": key,
        "programs": list(programs),
    }
