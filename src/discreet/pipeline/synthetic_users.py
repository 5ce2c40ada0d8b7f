"""Synthetic trajectories from the model of one release.

:func:`synthesize` draws users from the :class:`~discreet.pipeline.world_model.WorldModel` of a release and
writes their trajectories with the schema of the release. This is post-processing: it costs no privacy budget,
and the guarantee of the release covers the file.

Synthetic users are not real users. Every interval that is computed from them describes the model. The error
of the model does not become smaller with more synthetic users. Therefore the files are marked
(:mod:`discreet.data.synthetic_mark`), and readers of user data reject them by default.
:mod:`discreet.pipeline.synthetic_utility` compares them with the held-out part of the release.

Users follow the estimated behaviour policy. If a rule or a table in the schema determines the rewards, these
rewards are used. Otherwise, they are the means that the model estimates, rounded to 9 digits: a release has
no information about the distribution of rewards in one pair. Episodes of one user are drawn independently.

A file depends only on the release, the schema, the options and the versions of this library, NumPy and
PyArrow. A line of ``postprocessing.jsonl`` in the folder of the release states the hash of the file and all
options. With this line, :mod:`discreet.pipeline.verify` can write the file again. The line is not part of the
signed statement.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.data.prepare_config import read_prepare_config
from discreet.data.row_batches import Progress
from discreet.data.schema import Schema, read_schema, write_schema
from discreet.data.synthetic_mark import MARK, PREFIX, SYNTHETIC_INPUT, packed
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.apvi import APVI
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.release_files import StoredRelease, read_release
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.names import __version__
from discreet.pipeline.learn import RELEASE, SCHEMA, check_statement
from discreet.pipeline.learned_files import kind_of
from discreet.pipeline.synthetic_utility import Utility, utility_of
from discreet.pipeline.trajectory_files import TrajectoryWriter
from discreet.pipeline.world_model import WorldModel, world_model
from discreet.reports.statement import file_hash
from discreet.utils.system import optional

POSTPROCESSING = "postprocessing.jsonl"
MODEL = 1  # version of the model; it increases if the same release and seed give other users
_CHUNK = 2**14  # largest number of users in a chunk
_OPTIONS = ("users", "members", "seed", "share", "readings")


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """File of synthetic users, and its comparison with the real users of the release.

    Attributes
    ----------
    path : Path
        File of trajectories, or folder of a Minari dataset.
    schema : Path
        Schema of the file.
    facts : mapping
        Facts that mark the file: dataset and hash of the release, epsilon and delta, versions of the model
        and of the library, users, members, seed and share.
    utility : Utility or None
        Comparison with the held-out part; None if the model was estimated from the whole release.
    """

    __repr__ = brief

    path: Path
    schema: Path
    facts: Mapping[str, Any]
    utility: Utility | None


@dataclass(frozen=True, eq=False)
class _Cohort:
    """Model of a release, and the options for drawing users from this model."""

    release: StoredRelease
    schema: Schema
    model: WorldModel
    facts: Mapping[str, Any]
    readings: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: Path, users: int, members: int, seed: int, share: float, readings: Mapping[str, Any] | None
    ) -> _Cohort:
        """Read a release file and estimate its model. Raises ``ValueError`` for invalid input."""
        users, members = checks.integer("users", users, 1), checks.integer("members", members, 1)
        seed, share = checks.integer("seed", seed, 0), checks.real("share", share, 0.0, 1.0, open_low=True)
        if members > users:
            raise ValueError(f"members = {members}: must be at most users = {users}")
        beside = path.parent / SCHEMA
        if not path.is_file() or not beside.is_file():
            raise ValueError(
                f"release = {str(path)!r}: must be a folder that `discreet learn` made, or {RELEASE} in it "
                f"with {SCHEMA} beside it"
            )
        schema, release = read_schema(beside), read_release(path)
        if schema.hash != release.facts.schema:
            raise ValueError(f"{beside}: is not the schema of the release in the same folder")
        check_statement(path)
        if SYNTHETIC_INPUT in release.facts.options:
            raise ValueError(f"release = {str(path)!r}: must be of real users; it is of synthetic users")
        if schema.groups is not None:
            raise ValueError(
                "groups: must be left out of the schema; the model of a release has no groups of users"
            )
        for name, cells in (readings or {}).items():
            if not isinstance(cells, list) or len(cells) != schema.layout.states:
                raise ValueError(f"readings[{name!r}]: must be a list of {schema.layout.states} values")
        whole: dict[str, Any] = {"part": "whole"} if share == 1.0 else {"share": share}
        model = world_model(release, schema.spec(), **whole)
        guarantee = release.guarantee
        return cls(release, schema, model, {
            "dataset": schema.dataset, "release": file_hash(path), "epsilon": guarantee.epsilon,
            "delta": guarantee.delta, "randomness": guarantee.randomness, "model": MODEL,
            "library": __version__, "users": users, "members": members, "seed": seed, "share": share,
        }, readings or {})  # fmt: skip

    @property
    def marked(self) -> Schema:
        """Schema of the synthetic users."""
        return replace(self.schema, dataset=PREFIX + self.schema.dataset)

    def worlds(self) -> Iterator[TabularMDP]:
        """Yield the MDPs from which the blocks of users are drawn."""
        members = self.facts["members"]
        return iter([self.model.mean]) if members == 1 else self.model.members(members, self.facts["seed"])

    def drawn(self, progress: Progress | None) -> Iterator[Trajectories]:
        """Yield the episodes of all users, in chunks of users."""
        users, members, seed = (self.facts[name] for name in ("users", "members", "seed"))
        each, policy = self.schema.episodes_per_user, policy_rows(self.schema.layout, self.model.behaviour)
        for block, world in enumerate(self.worlds()):
            end = (block + 1) * users // members
            for first in range(block * users // members, end, _CHUNK):
                n = min(_CHUNK, end - first)
                found = rollout_batch(world, policy, n * each, seed, 0, first * each)
                yield replace(found, rewards=_rewards(self.schema, found))
                if progress is not None:
                    progress("draw users", first + n, users)

    def write(self, path: Path, schema: Schema, count: bool, progress: Progress | None) -> Any:
        """Write the trajectories to a file.

        Returns the sums of the trajectories for the query of the release, or None.
        """
        learner = DecisionPoints() if self.release.facts.first_visits else APVI()
        kind: Any = kind_of(self.schema, learner)
        each, session = self.schema.episodes_per_user, NoPrivacy().stored(kind.query, Seeded(0))
        with (
            session,
            TrajectoryWriter(path, schema, trim=True, synthetic=self.facts, readings=self.readings) as writer,
        ):
            for people in self.drawn(progress):
                if count:
                    users = writer.users + np.arange(len(people)) // each
                    session.submit_many(kind.to_records(people), users)
                writer.write(people)
            return session.release().keep() if count else None


def _rewards(schema: Schema, people: Trajectories) -> Floats:
    """Return the (n, H) rewards in [0, 1] that the schema determines, or the rounded means of the model."""
    states, scale = people.states, schema.high - schema.low
    none = min(max(-schema.low / scale, 0.0), 1.0)
    ended = np.isin(states[:, :-1], schema.terminal)
    if schema.outcomes is not None:
        arrival = np.full(schema.layout.states, none)
        for state, reward in schema.outcomes.items():
            arrival[state] = min(max((reward - schema.low) / scale, 0.0), 1.0)
        return np.where(ended, none, arrival[states[:, 1:]])
    if schema.known is not None:
        step = np.arange(schema.horizon) if len(schema.known) > 1 else 0
        return np.asarray(schema.known[step, states[:, :-1], people.actions])
    return np.where(ended, none, np.round(people.rewards, 9))


def synthesize(
    release: str | Path,
    out: str | Path,
    users: int,
    *,
    members: int = 1,
    seed: int = 0,
    share: float = 0.5,
    level: float = 0.95,
    declaration: str | Path | None = None,
    progress: Progress | None = None,
) -> SyntheticData:
    """Draw synthetic users from the model of a release, and write their trajectories and schema.

    The dataset of the schema is ``synthetic of`` the dataset of the release. If a statement is in the folder
    of the release, a line is appended to ``postprocessing.jsonl`` in this folder.

    Parameters
    ----------
    release : path
        Folder that :func:`discreet.pipeline.learn.learn` made, or its ``release.parquet``. The release must
        contain first visits, or counts per step, without groups.
    out : path
        New ``.parquet`` or ``.csv`` file outside the folder of the release. A path without an extension is a
        new folder for a Minari dataset. The schema is written to a ``.toml`` file with the same name.
    users : int
        Number of synthetic users, at least 1.
    members : int
        If 1, all users are drawn from the expected MDP. If k > 1, k MDPs are drawn from the uncertainty of
        the model (:meth:`~discreet.pipeline.world_model.WorldModel.members`), one for each of k equal blocks
        of users.
    seed : int
        Seed of all draws, at least 0.
    share : float
        Share of users in the part of the release from which the model is estimated, in (0, 1]. The utility is
        estimated from the other part. With 1, the model is estimated from the whole release, and the utility
        is not known.
    level : float
        Confidence level of each interval of the utility, in (0, 1).
    declaration : path, optional
        Declaration of :func:`discreet.data.prepare.prepare` that made the states. Its readings become
        additional columns. A numeric reading is the centre of its bin or cluster. Not supported for Minari.
    progress : function, called with the name of the stage, the number of users and their total

    Returns
    -------
    SyntheticData

    Raises
    ------
    ValueError
        If the release, its schema or an argument is invalid, or a file exists already.
    ImportError
        If ``out`` is a folder and Minari is not installed.
    """
    path, out = Path(release), Path(out)
    path = path / RELEASE if path.is_dir() else path
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    beside = out.with_suffix(".toml")
    if out.suffix not in (".parquet", ".csv", ""):
        raise ValueError(f"out = {str(out)!r}: must end in .parquet or .csv, or be the folder of a dataset")
    for one in (out, beside):
        if one.exists():
            raise ValueError(f"out = {str(out)!r}: {one} exists already, must be new")
    if not out.suffix:
        optional("minari", "minari", "a Minari dataset")
        if not re.fullmatch(r"[\w-]+-v\d+", out.name):
            raise ValueError(f"out = {str(out)!r}: must end in -v and a number, as Minari names datasets")
    cohort = _Cohort.of(path, users, members, seed, share, None)
    if declaration is not None:
        cohort = replace(cohort, readings=_readings(declaration, cohort.schema))
    if path.parent.resolve() in out.resolve().parents:
        raise ValueError(f"out = {str(out)!r}: must be outside the folder of the release, which is complete")
    schema, made = cohort.marked, out
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        if not out.suffix:
            schema, made = _for_minari(schema), Path(scratch) / "users.parquet"
        sums = cohort.write(made, schema, share < 1.0, progress)
        digest = file_hash(made)
        if not out.suffix:
            _write_minari(made, out, schema, cohort.facts)
    write_schema(schema, beside)
    _record(
        path.parent,
        {
            "kind": "synthetic users",
            "file": out.name,
            "sha256": digest,
            **cohort.facts,
            "readings": dict(cohort.readings),
        },
    )
    if sums is None:
        return SyntheticData(out, beside, cohort.facts, None)
    utility = utility_of(cohort.release, sums, cohort.model, list(cohort.worlds()), share=share, level=level)
    return SyntheticData(out, beside, cohort.facts, utility)


def _readings(declaration: str | Path, schema: Schema) -> dict[str, Any]:
    """Return a mapping of names to the readings of each state, from the declaration that made the states."""
    declared = read_prepare_config(declaration)
    if declared.schema.state_labels != schema.state_labels:
        raise ValueError(f"declaration = {str(declaration)!r}: must be that of the states of the release")
    found: dict[str, Any] = declared.states.columns(schema.layout.states)
    taken = sorted(found.keys() & {*vars(schema.columns).values(), MARK})
    if taken:
        raise ValueError(f"declaration = {str(declaration)!r}: {taken[0]!r} is a column of the schema, too")
    return found


# ------------------------------------------------------------------------------ the release's folder
def _versions() -> dict[str, str]:
    return {"library": __version__, "numpy": np.__version__, "pyarrow": pa.__version__}


def _record(folder: Path, line: Mapping[str, Any]) -> None:
    """Append a line to the list of post-processed files in the folder, if the folder has a statement."""
    if not (folder / "statement.json").exists():
        return
    text = json.dumps({**line, **_versions()}, ensure_ascii=False, allow_nan=False) + "\n"
    path = folder / POSTPROCESSING
    if path.exists() and text in path.read_text("utf-8").splitlines(keepends=True):
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with os.fdopen(handle, "ab") as file:
        file.write(text.encode())


def processed(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the folder's list of post-processed files; empty without a list.

    folder : folder of a release. Raises ``ValueError`` if a line is not a JSON object.
    """
    path = folder / POSTPROCESSING
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{path}: must hold one JSON object per line")
    return found


def remade(folder: Path, line: Mapping[str, Any]) -> str | None:
    """Write a file of synthetic users again, as a line of the folder's list describes it.

    Returns the hash of the new file.

    - folder : folder of the release.
    - line : one of :func:`processed`.

    Returns None if another version of this library, NumPy or PyArrow wrote the file. Raises ``ValueError`` or
    ``KeyError`` if the line is invalid.
    """
    if any(line[name] != version for name, version in _versions().items()):
        return None
    cohort = _Cohort.of(folder / RELEASE, *(line[name] for name in _OPTIONS))
    for name, fact in cohort.facts.items():
        if line[name] != fact:
            raise ValueError(f"{POSTPROCESSING}: {name} = {line[name]!r}: must be {fact!r}")
    suffix = Path(line["file"]).suffix
    schema = cohort.marked if suffix else _for_minari(cohort.marked)
    with TemporaryDirectory() as scratch:
        made = Path(scratch) / f"users{suffix or '.parquet'}"
        cohort.write(made, schema, False, None)
        return file_hash(made)


# ------------------------------------------------------------------------------ Minari
def _for_minari(schema: Schema) -> Schema:
    """Return the schema of a Minari dataset, which has indices instead of labels.

    Raises ``ValueError`` if users have several episodes, because each episode of such a dataset is one user.
    """
    if schema.episodes_per_user > 1:
        raise ValueError(
            f"out: must be a file for episodes_per_user = {schema.episodes_per_user}; each episode of a "
            "Minari dataset is one user"
        )
    return replace(schema, state_labels=None, action_labels=None, first_step=0)


def _write_minari(rows: Path, out: Path, schema: Schema, facts: Mapping[str, Any]) -> None:
    """Write the rows of a Parquet file as a Minari dataset with the name of the folder ``out``."""
    minari = optional("minari", "minari", "a Minari dataset")
    from gymnasium.spaces import Discrete
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    names, table = schema.columns, parquet.read_table(rows)
    user, state, action, after, reward = (
        table[name].to_numpy()
        for name in (names.user, names.state, names.action, names.next_state, names.reward)
    )
    begin = np.flatnonzero(np.diff(user, prepend=-1))
    out.joinpath("data").mkdir(parents=True)
    storage = MinariStorage.new(
        out / "data", observation_space=Discrete(schema.layout.states),
        action_space=Discrete(schema.layout.actions),
    )  # fmt: skip
    episodes = []
    for number, (first, end) in enumerate(zip(begin, [*begin[1:], len(user)], strict=True)):
        n, ended = end - first, bool(np.isin(after[end - 1], schema.terminal))
        last = np.arange(n) == n - 1
        episodes.append(
            EpisodeBuffer(
                id=number, observations=np.append(state[first:end], after[end - 1]),
                actions=action[first:end], rewards=reward[first:end],
                terminations=last & ended, truncations=last & (not ended),
            )
        )  # fmt: skip
    storage.update_episodes(episodes)
    named = {"dataset_id": out.name, "minari_version": minari.__version__}
    storage.update_metadata({**named, MARK: packed(facts)})
