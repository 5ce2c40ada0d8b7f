"""Legends: learner, trust model and true epsilon; names that tell runs apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.core.guarantee import no_guarantee
from discreet.experiments.labels import privacy_words, short_labels
from discreet.experiments.plots import legend_label
from discreet.experiments.results import Result

Make = Callable[..., Result]


def test_legend_says_learner_trust_true_epsilon_and_seeds(
    make_result: Make, private: Callable[..., Any]
) -> None:
    assert legend_label(make_result(seeds=8)) == "NoPrivacy: not private; 8 seeds"
    assert legend_label(make_result(seeds=1, guarantee=private())) == "NoPrivacy: joint DP, ε = 1; 1 seed"
    published = private(calibration="published", noise="laplace")
    assert privacy_words(published) == "joint DP, ε = 2.01 (stated 1)"  # 2 * 10 / log2(1000)
    assert privacy_words(private(noise="gaussian", delta=1e-6)) == "joint DP, ε = 1, δ = 1e-06"
    assert privacy_words(replace(no_guarantee("seeded", reason="code"), trust="joint")) == "not private"


def test_a_true_epsilon_beside_the_stated_one_is_told_apart() -> None:
    from types import SimpleNamespace

    from discreet.experiments.plots import privacy_words

    def said(epsilon: float) -> str:
        return privacy_words(SimpleNamespace(trust="joint", epsilon=epsilon, delta=0.0, epsilon_nominal=1.0))

    assert said(1.0034) == "joint DP, ε = 1.01 (stated 1)"  # rounded up
    assert said(2.0076) == "joint DP, ε = 2.01 (stated 1)"
    assert said(0.99976) == "joint DP, ε = 0.9998 (stated 1)"
    assert said(1.0) == "joint DP, ε = 1"


def test_a_delta_is_never_rounded_down() -> None:
    from types import SimpleNamespace

    from discreet.experiments.plots import privacy_words

    told = SimpleNamespace(trust="joint", epsilon=1.0, delta=1.44e-6, epsilon_nominal=None)
    assert privacy_words(told) == "joint DP, ε = 1, δ = 1.5e-06"


RIVER = {"horizon": 6}


GAUSSIAN = {"epsilon": 1.0, "delta": 1e-6}


def played(learner: Any, privatizer: Any, mdp: Any = None, **options: Any) -> dr.Result:
    world = dr.make("riverswim", **RIVER) if mdp is None else mdp
    return dr.simulate(world, learner, privatizer, **{"episodes": 60, "workers": 1, **options})


def test_runs_that_differ_have_different_names() -> None:
    """Options, presets, delta, horizons, seeds: whatever differs, no two curves have one name."""
    central = dr.Central(epsilon=1.0)
    results = [
        played(dr.DPUCBVI(), central),
        played(dr.DPUCBVI(bonus_scale=0.2), central),
        played(dr.DPUCBVI(bonus_scale=0.2), dr.Central(epsilon=1.0, release="tree", noise="laplace")),
        played(dr.learners.PrivateUCBVI(preset="paper"), central),
        played(dr.learners.PrivateUCBVI(preset="paper"), dr.Central(epsilon=1.0, preset="paper")),
        played(dr.learners.UCBVI(), dr.NoPrivacy()),
        played(dr.learners.UCBVI(bonus="bernstein"), dr.NoPrivacy()),
        played(dr.DPUCBVI(), dr.Central(**GAUSSIAN)),
        played(dr.DPUCBVI(), dr.Central(epsilon=1.0, delta=1.2e-6)),
        played(dr.DPUCBVI(), dr.Central(epsilon=1.0001)),
        played(dr.DPUCBVI(), central, seed=1),
        played(dr.DPUCBVI(), central, by="batch"),
    ]
    labels, shared = short_labels(results)
    assert not shared
    names = [f"{label}: {privacy_words(r.guarantee)}" for label, r in zip(labels, results, strict=True)]
    assert len(set(names)) == len(results)
    assert results[1].label == "DPUCBVI (bonus_scale=0.2)"
    assert results[3].label == "PrivateUCBVI (learner.preset=paper)"  # Central's own noise beside it
    assert results[4].label == "PrivateUCBVI (paper)"
    assert results[4].guarantee.epsilon > 1.5  # a privatizer's preset does touch privacy: stated is 1
    assert "(stated 1)" in privacy_words(results[4].guarantee)
    assert results[3].guarantee.epsilon == pytest.approx(1.0, rel=1e-9)  # a learner's does not
    assert results[6].label == "UCBVI (bonus=bernstein)"
    assert labels[-1] == "DPUCBVI [by=batch, seed=0]"  # what differs in epsilon is told by its budget
    figure = dr.experiments.regret_figure(results[:5])
    drawn = [text.get_text() for text in figure.axes[0].texts] or figure.legends[0].get_texts()
    assert len({str(text) for text in drawn}) == 6  # and the uniform policy
    compared = dr.compare(results[:2])
    assert [one.label for one in compared] == ["DPUCBVI", "DPUCBVI (bonus_scale=0.2)"]


def test_short_labels_keep_what_differs() -> None:
    """Options that all share move to the title; those that differ stay in the labels."""
    ours = [played(dr.DPUCBVI(bonus_scale=0.2, cap=cap), dr.NoPrivacy()) for cap in ("H", "H-h+1")]
    labels, shared = short_labels(ours)
    assert shared == "bonus_scale=0.2"
    assert len(set(labels)) == 2


def test_a_label_is_the_users(tmp_path: Path) -> None:
    result = played(dr.DPUCBVI(), dr.NoPrivacy(), label="ours, long horizon")
    assert result.label == "ours, long horizon"
    assert short_labels([result, played(dr.DPUCBVI(bonus_scale=0.5), dr.NoPrivacy())])[0][0] == result.label
    result.save(tmp_path / "one")
    assert dr.Result.load(tmp_path / "one").label == "ours, long horizon"
    two = [replace(result, about=replace(result.about, label="same")) for _ in range(2)]
    other = played(dr.DPUCBVI(bonus_scale=0.5), dr.NoPrivacy(), label="same")
    assert short_labels([two[0], other])[0] == ["same", "same [learner.bonus_scale=0.5]"]
    assert short_labels(two)[0] == ["same", "same"]  # one run, twice
    for wrong in ("", "two\nlines", 3):
        with pytest.raises(ValueError, match=r"label = .*: must be a text of one line"):
            played(dr.DPUCBVI(), dr.NoPrivacy(), label=wrong)
