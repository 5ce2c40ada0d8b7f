"""Summaries of learners: options that are set, and what voids the theorem."""

from dataclasses import dataclass

from discreet.learners.online.summary import summary_of


@dataclass
class Learner:
    bonus: str = "tight"
    scale: float | None = None


def test_unset_options_are_left_out_and_reasons_are_named() -> None:
    assert summary_of(Learner(), (), " of 2021") == (
        "Learner(bonus='tight')\nThe options are those of the regret theorem of 2021."
    )
    said = summary_of(Learner(scale=0.5), iter(["a: b", "c: d"]))
    assert (
        said
        == "Learner(bonus='tight', scale=0.5)\nThe regret theorem does not cover these options: a: b; c: d."
    )
