"""The mechanism of a study is that of its first start; another learner goes on only if it is accepted."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, a_study, a_writer, begun, context_table, stopped

from discreet.service import encoding as codec
from discreet.service import release_worker as turns
from discreet.service.app import Service
from discreet.service.database import TABLES, Store
from discreet.service.frozen_mechanism import (
    frozen,
    mechanism_of,
    mechanism_text,
    note_program,
    program_of,
    same_program,
)
from discreet.service.study_config import study_of

from .test_database import a_batch


def of_program(store: Store, **values: Any) -> None:
    """Change the first row of the table of versions."""
    with store._writing() as connection:
        connection.execute(TABLES["program"].update().values(values))


@pytest.mark.parametrize("trust", ["central", "local", "shuffle"])
def test_a_mechanism_is_json_and_comes_back_exactly(trust: str) -> None:
    for more in ({}, {"privatizer": {"name": "central", "epsilon": 1.0}} if trust == "central" else {}):
        mechanism = a_study(300, trust, **more).mechanism
        found = mechanism_of(mechanism_text(mechanism))
        assert mechanism_text(found) == mechanism_text(mechanism)
        assert found.guarantee == mechanism.guarantee
        assert type(found) is type(mechanism)
        if trust == "central":
            assert found.scales.tobytes() == mechanism.scales.tobytes()


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_mechanism_of_contexts_comes_back_exactly(trust: str) -> None:
    content = context_table(300, trust)
    content["context"]["basis"] = ["fourier", 3, 0.7, 5]
    mechanism: Any = study_of(content).mechanism
    found = mechanism_of(mechanism_text(mechanism))
    assert mechanism_text(found) == mechanism_text(mechanism)
    assert found.guarantee == mechanism.guarantee
    assert found.query.features.to_dict() == mechanism.query.features.to_dict()
    for name, scales in mechanism.scales.items():
        assert found.scales[name].tobytes() == scales.tobytes()


def test_a_damaged_mechanism_is_refused() -> None:
    text = mechanism_text(a_study().mechanism)
    for bad in ("", "{}", text[:-1], "[]"):
        with pytest.raises(ValueError, match="mechanism: is damaged"):
            mechanism_of(bad)
    table = json.loads(text)
    table["release_times"][-1] += 1
    with pytest.raises(ValueError, match="computes other release times"):
        mechanism_of(json.dumps(table))


def test_a_later_version_does_not_calibrate_again(tmp_path: Path) -> None:
    """A calibration that would give less noise now changes no noise of a study that has begun."""
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        a_batch(study, store)
        loose = a_study(privatizer={"name": "central", "epsilon": 8.0, "delta": 1e-6}).privatizer
        later = replace(study, privatizer=loose)
        assert later.mechanism.scales[0] < study.mechanism.scales[0]
        writer = turns.Writer(later, store, "later", stopped)
        assert writer._study.mechanism.scales.tobytes() == study.mechanism.scales.tobytes()
        assert writer._study.guarantee == study.guarantee
        assert writer.hold()
        assert writer.step()
        law = next(iter(codec.of_exact(store.exact_release(1)).estimates.values())).law  # type: ignore[arg-type]
        assert law.std() >= 0.99 * study.mechanism.scales[0]
        service = Service(later, store, a_key(tmp_path))
        assert service.content["guarantee"] == study.guarantee.to_dict()
        assert service.content["first"] == study.guarantee.statement
        assert frozen(service.study, store) is service.study


@pytest.mark.parametrize("name", ["epsilon", "rho"])
def test_a_version_that_finds_a_larger_loss_releases_nothing(tmp_path: Path, name: str) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        a_batch(study, store)
        told = study.guarantee.to_dict()
        of_program(store, version="0.0")
        for factor, refused in ((1.0 - 1e-6, True), (1.0 - 1e-12, False), (1.0 + 1e-12, False)):
            stated = {**told, name: told[name] * factor}
            of_program(store, guarantee_json=json.dumps(stated))
            if refused:
                with pytest.raises(ValueError, match="another guarantee than the stated one"):
                    turns.Writer(study, store, "one", stopped)
            else:
                found = frozen(study, store)
                assert found.stated == stated  # what people were told stays as it is
        of_program(store, guarantee_json=json.dumps(told))
        assert a_writer(study, store).step()


def test_a_later_version_that_finds_a_smaller_loss_goes_on_with_the_stated_one(tmp_path: Path) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        told = study.guarantee.to_dict()
        for name, value, refused in (
            ("rho", told["rho"] * 1.1, False),
            ("rho", None, False),  # an earlier version proved none
            ("epsilon", told["epsilon_nominal"] * 1.1, True),
            ("epsilon", None, True),
            ("delta", 1e-5, True),
        ):
            of_program(store, version="0.0", guarantee_json=json.dumps({**told, name: value}))
            if refused:
                with pytest.raises(ValueError, match=f"{name} = .*the database was changed"):
                    frozen(study, store)
            else:
                assert frozen(study, store).stated == {**told, name: value}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epsilon", None, r"epsilon = None: is the guarantee that the database states, and .* gives 0\.99"),
        ("epsilon", 1.1, r"epsilon = 1\.1: is the guarantee that the database states"),
        ("rho", None, r"rho = None: is the guarantee"),
        ("mu", 0.1, r"mu = 0\.1: is the guarantee"),
        ("delta", 1e-5, r"delta = 1e-05: is the guarantee"),
        ("delta", "no", r"delta = 'no'"),
        ("trust", "local", r"trust = 'local': is what the database states, and its mechanism gives 'joint'"),
        ("randomness", "seeded", r"randomness = 'seeded': is what"),
        ("statement", "epsilon = 0.1", r"statement = 'epsilon = 0\.1': is what"),
    ],
)
def test_a_changed_guarantee_is_refused(tmp_path: Path, name: str, value: Any, words: str) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        told = study.guarantee.to_dict()
        of_program(store, guarantee_json=json.dumps({**told, name: value}))
        for start in (lambda: turns.Writer(study, store, "a", stopped), lambda: Service(study, store, None)):
            with pytest.raises(ValueError, match=words):
                start()
        del told[name]
        for damaged in (told, None, []):
            of_program(store, guarantee_json=json.dumps(damaged))
            with pytest.raises(ValueError, match=r"guarantee|the database was changed"):
                frozen(study, store)


def test_versions_are_noted_once(tmp_path: Path) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        note_program(study, store)
        assert len(store.programs()) == 1
        of_program(store, numpy="0.1")
        note_program(study, store)
        note_program(study, store)
        assert [one["numpy"] for one in store.programs()] == ["0.1", np.__version__]
        assert same_program(store.programs()[1], program_of(study))
        service = Service(study, store, a_key(tmp_path))
        assert service.content["programs"] == store.programs()


def test_another_version_of_the_learner_needs_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        own = program_of(study)["learner_version"]
        monkeypatch.setattr(type(study.learner), "learner_version", own + 1, raising=False)
        with pytest.raises(
            ValueError, match=f"version {own + 1} .* cannot go on from the state of version {own}"
        ):
            note_program(study, store)
        with pytest.raises(ValueError, match="--accept-learner"):
            turns.Writer(study, store, "one", stopped)
        note_program(study, store, accept_learner=True)
        assert [one["learner_version"] for one in store.programs()] == [own, own + 1]
        a_batch(study, store)
        assert a_writer(study, store).step()


@pytest.mark.parametrize("close", ["all", "resolved"])
def test_an_accepted_learner_reads_all_releases_and_is_checked_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: str
) -> None:
    study = a_study(serving={"close": close})
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer = a_writer(study, store)
        for _ in range(2):
            a_batch(study, store)
            assert writer.step()
        a_batch(study, store)
        writer.release_lease()
        learner, seen = type(study.learner), list[Any]()
        plan = learner.plan

        def other(self: Any, state: Any, release: Any, ask: Any) -> Any:
            made, state = plan(self, state, release, ask)
            seen.append((release.number, getattr(release, "followed", None)))
            return turns.Plan(1 - made.policy, made.users, last=made.last), state

        monkeypatch.setattr(learner, "plan", other)
        with pytest.raises(RuntimeError, match="--accept-learner"):
            a_writer(study, store).step()
        end_lease(store)
        note_program(study, store, accept_learner=True)
        seen.clear()
        writer = a_writer(study, store)
        assert writer.step()
        # it is told the policies that people followed, which are not those that it would have given
        followed = {number: one for number, one in seen if number}
        assert set(followed) == {1, 2, 3}
        for number in (1, 2):
            given = codec.policy_of(json.loads(store.policies(number - 1)[0]["policy"]))
            assert followed[number] is not None
            assert np.array_equal(followed[number][0][0], given)
        writer.release_lease()
        a_batch(study, store)
        assert a_writer(study, store).step()  # its own plans are recomputed bit for bit
        end_lease(store)
        a_batch(study, store)
        monkeypatch.setattr(learner, "plan", plan)
        with pytest.raises(RuntimeError, match="release 3: this version of the library makes other plans"):
            a_writer(study, store).step()


def end_lease(store: Store) -> None:
    """End the lease, as a writer that was killed leaves it."""
    with store._writing() as connection:
        connection.execute(TABLES["lease"].update().values(expires=0.0))
