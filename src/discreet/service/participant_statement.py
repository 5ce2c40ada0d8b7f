"""Statement for participants: the guarantee, the data that each party sees, and facts that noise does not
hide.
"""

from __future__ import annotations

from typing import Any

from discreet.device.message_guarantee import MessageGuarantee
from discreet.service.batch_sums import ShuffledBatches, form_of_bytes
from discreet.service.study_config import Study

__all__ = ["SEES", "SIDE_CHANNELS", "make_participant_statement"]

SEES = {
    "joint": (
        "You trust the operator. The operator's server receives your whole record (every state, action and "
        "reward), keeps it until your batch is complete, and removes it once it is counted.",
        "The server keeps exact sums of all records, which are as private as the records.",
        "Everybody else sees releases and policies: sums with noise, and what is computed from them. The "
        "guarantee is about these.",
    ),
    "local": (
        "You need not trust the operator with your record. Your device randomizes it, and sends one message; "
        "the guarantee holds for that message, towards the operator and everybody else.",
        "The operator sees your message, and can tell from the ticket to whom it was issued, if a list of "
        "that was kept.",
    ),
    "shuffle": (
        "You need not trust the operator with your record. Your device hides it in coin flips and sends one "
        "message to the shuffler, which somebody else must run; the guarantee is about what leaves the "
        "shuffler: sums of whole batches.",
        "The shuffler sees your message, the ticket that came with it and the address that it came from. It "
        "keeps neither address nor time, and keeps the message until its batch is complete: then it adds the "
        "messages of the batch up, removes them, and sends the operator the sum. Of a batch with too few "
        "messages it sends none.",
        "The operator sees sums of batches, and no ticket: who handed you yours by name cannot tell your "
        "message.",
        "Together, or if one is the other, shuffler and operator see your message and, if a list of tickets "
        "was kept, whose it is.",
        "Everybody else sees releases and policies, which are computed from the sums.",
    ),
}
SIDE_CHANNELS = (
    "Who takes part, when a place was taken, when an answer came, and that none came in time, are seen by "
    "the operator and by whoever watches the network. The noise hides what you did, not that you were "
    "here. The service adds answers up in the order of the tickets, not in that of their arrival. A release "
    "is made when the last person of its batch has answered or is absent, so that everybody who asks for it "
    "can see when that was; and how many have answered, and how many are absent, is on the operator's page. "
    "These counts carry no noise: how many take part is public under the guarantee. If whether you answer "
    "follows what happened to you, they tell of that.",
    "An answer's size and the time until it comes may follow what happened to you, under central trust: its "
    "numbers are written as text. Send it at a time of your own, not when you act.",
    "Under local and shuffle trust, how long a device takes to randomize is covered by no guarantee: send "
    "the message some time after it was made, not at once.",
    "How long the next plan takes to be made follows how many people came, which is public.",
)


def message_alone(study: Study) -> MessageGuarantee:
    """Return the guarantee of a single message without a trusted shuffler.

    The guarantee can differ between batches. The weakest one is returned.
    """
    batches = ShuffledBatches(study, 0)
    every = {batches.form(int(n)) for n in [0, *study.mechanism.ends[:-1]]}  # type: ignore[union-attr]
    found = [form_of_bytes(form).guarantee for form in every]
    return max(found, key=lambda one: (one.epsilon or 0.0, one.shows))


def _prior(study: Study) -> dict[str, str]:
    """Return the entry about the learner's prior; empty without a prior."""
    note = getattr(study.learner, "privacy_note", lambda _: None)(study.spec)
    return {"prior": note} if note else {}


def make_participant_statement(study: Study, ledger: Any, key: str) -> dict[str, Any]:
    """Return the statement for participants as JSON values, including its sentences.

    Parameters
    ----------
    ledger : the study's reservation in the ledger; None if the study uses no ledger.
    key : public key of the statement's signature.
    """
    guarantee = study.guarantee
    layout = study.layout
    return {
        "study": study.name,
        "identity": study.identity,
        "trust": study.trust,
        "first": guarantee.statement,
        "guarantee": guarantee.to_dict(),
        "who_sees_what": [*SEES[study.trust], *([message_alone(study).statement] if study.shuffled else ())],
        "shuffler": None if study.shuffler is None else dict(study.shuffler),
        "side_channels": list(SIDE_CHANNELS),
        "rehearsal": study.randomness.kind == "seeded",
        "world": {
            "states": layout.states,
            "actions": layout.actions,
            "horizon": layout.horizon,
            "users": study.users,
            "rewards": list(study.rewards),
            "stationary": study.stationary,
            "mask": None if layout.mask is None else layout.mask.tolist(),
        },
        "learner": str(study.table.get("learner", {}).get("name", type(study.learner).__name__)),
        **_prior(study),
        "releases": [int(n) for n in study.times],
        "absent": {
            "answer_within_seconds": study.answer_within,
            "closes_after_seconds": study.closes_after,
            "meaning": (
                "Who took a place and has not answered in this time counts as absent: her place is not given "
                "to anybody else, so that who is in a batch does not follow what happened to anybody, but "
                "for when people answer: the next batch begins when this one is whole."
            ),
        },
        "ledger": ledger
        or "This study is in no ledger: what other releases about the same people cost is not known here.",
        "key": key,
    }
