"""What is stated to people before they come: the guarantee, who sees what, and what no noise hides."""

from __future__ import annotations

from typing import Any

from discreet.serve.study import Study

__all__ = ["SEES", "SIDE_CHANNELS", "statement_of"]

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
}
SIDE_CHANNELS = (
    "Who takes part, when a place was taken, when an answer came, and that none came in time, are seen by "
    "the operator and by whoever watches the network. The noise hides what you did, not that you were "
    "here. The service adds answers up in the order of the tickets, not in that of their arrival. A release "
    "is made when the last person of its batch has answered or is absent, so that everybody who asks for it "
    "can see when that was; and how many have answered, and how many are absent, is on the operator's page.",
    "An answer's size and the time until it comes may follow what happened to you, under central trust: its "
    "numbers are written as text. Send it at a time of your own, not when you act.",
    "Under local trust, how long a device takes to randomize is covered by no guarantee: send the message "
    "some time after it was made, not at once.",
    "How long the next plan takes to be made follows how many people came, which is public.",
)


def statement_of(study: Study, ledger: Any, key: str) -> dict[str, Any]:
    """The statement as plain values, sentences among them. key : that signs it."""
    guarantee = study.guarantee
    layout = study.layout
    return {
        "study": study.name,
        "identity": study.identity,
        "trust": study.trust,
        "first": guarantee.statement,
        "guarantee": guarantee.to_dict(),
        "who_sees_what": list(SEES[study.trust]),
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
