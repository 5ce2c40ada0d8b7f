"""Sites on Flower: its simulation engine, and an analyst who lies (`make test-engines`).

What the server may try is tried on a grid in this process, where each message can be changed on its way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.schema import Schema
from discreet.ledger.ledger import Ledger
from discreet.pipeline.synthetic_data import write_made_up

flwr = pytest.importorskip("flwr")
os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip
KEY = bytes(range(32))
BUDGET = dr.Central(epsilon=1.0, delta=1e-6)
ALARM = 1e-6
CONFIGS = "secaggplus_configs"
SITES = 4


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four of them, each with a part of its own."""
    folder = tmp_path_factory.mktemp("hospitals")
    write_made_up(SCHEMA, 400, folder / "all.parquet", seed=4)
    frame = pd.read_parquet(folder / "all.parquet")
    who = frame["user"].astype("category").cat.codes % SITES
    for i in range(SITES):
        source = dr.data.open_source(frame[who == i], SCHEMA)
        dr.pipeline.aggregate_part(source, dr.DecisionPoints(), KEY).save(folder / f"{i}.tally")
    return folder


def plan_of(**how: Any) -> dr.pipeline.FederationPlan:
    return dr.pipeline.FederationPlan(SCHEMA, dr.DecisionPoints(), BUDGET, SITES, **how)


def pooled(hospitals: Path, out: Path, sites: range = range(SITES)) -> dr.pipeline.PartialAggregateFile:
    """All people in one place, and what is learned from them with noise from a seed."""
    whole = dr.pipeline.merge_aggregates([hospitals / f"{i}.tally" for i in sites])
    dr.learn(
        whole, dr.DecisionPoints(), out, privatizer=BUDGET, ledger=None, schema=SCHEMA, randomness=Seeded(3)
    )
    return whole


def same(one: Path, other: Path) -> bool:
    files = ("policy.csv", "report.md", "report.html", "report.json")
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in files)


def noise_in(folder: Path, whole: dr.pipeline.PartialAggregateFile) -> np.ndarray:
    """Of every cell of a release, in units of its standard deviation."""
    release, cells = dr.learners.read_release(folder / "release.parquet"), whole.tally.cells()
    step = release.step(0)
    tables = {"transition_counts": step.transitions, "visits": step.visits}
    tables["centered_reward_sums"] = step.rewards
    query = whole.tally.query
    found = []
    for name, begin, end in zip(query.row_families, query.offsets[:-1], query.offsets[1:], strict=True):
        exact = cells[begin:end]
        found.append((np.ravel(tables[name]) - exact) / release.laws[name].std())
    return np.concatenate(found)


def looks_normal(found: np.ndarray) -> bool:
    """Sum of squares of independent noises in units of their deviation; false alarms: ALARM."""
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], found.size)
    return bool(low < float((found**2).sum()) < high)


# ------------------------------------------------------------------------------ Flower's own engine


@pytest.mark.parametrize("noise", ["analyst", "sites"])
def test_simulation(noise: str, hospitals: Path, tmp_path: Path) -> None:
    """Ray's actors are the sites; drawn by the analyst from a seed, the release is the pooled one, bit for
    bit.

    With noise from the sites, of whom one does not send, it has their law around the sums of the other three.
    """
    from flwr.simulation import run_simulation

    shared = noise == "sites"
    plan = plan_of(noise=noise, needed=3 if shared else 4)

    def site(context: Any) -> dr.pipeline.FederatedSite:
        i = context.node_config["partition-id"]
        last = context.state.config_records.get("discreet_sites", {}).get("stage")
        if shared and i == 3 and last == "share_keys":
            raise RuntimeError("a power cut")
        return dr.pipeline.FederatedSite(
            plan,
            dr.pipeline.PartialAggregateFile.load(hospitals / f"{i}.tally"),
            KEY,
            tmp_path / f"{i}.ledger",
        )

    out = tmp_path / "out"
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    server = dr.pipeline.flower_server(plan, out, randomness=None if shared else Seeded(3))
    run_simulation(server, dr.pipeline.flower_client(site), num_supernodes=SITES, backend_config=resources)
    assert [check.name for check in dr.verify(out) if not check.ok] == []
    for i in range(SITES):
        with Ledger.open(tmp_path / f"{i}.ledger") as ledger:
            charged = [(one.users, one.records) for one in ledger.entries("ward") if one.kind == "reserve"]
        assert charged == ([] if shared and i == 3 else [(100, plan.records)])
    if not shared:
        pooled(hospitals, tmp_path / "pooled")
        assert same(out, tmp_path / "pooled")
        return
    whole = dr.pipeline.merge_aggregates([hospitals / f"{i}.tally" for i in range(3)])
    assert dr.learners.read_release(out / "release.parquet").users == 300
    assert looks_normal(noise_in(out, whole))


# ------------------------------------------------------------------------------ any server


@pytest.fixture(autouse=True)
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites' claims end with the test."""
    monkeypatch.setattr("discreet.pipeline.flower_app.gettempdir", lambda: str(tmp_path))


class Grid:
    """What stands between the apps: messages pass ``tamper(stage, node, told)`` on the way to a site."""

    def __init__(self, app: Any, tamper: Callable[[str, int, dict[str, Any]], Any] | None = None) -> None:
        from flwr.app import Context, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app, self.tamper, self.errors, self.answers = app, tamper, list[str](), list[Any]()
        self.contexts = {
            1000 + i: Context(1, 1000 + i, {"partition-id": i}, RecordDict(), {}) for i in range(SITES)
        }

    run = SimpleNamespace(run_id=1)

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def ask(self, message: Any) -> Any:
        from flwr.app import ConfigRecord, Error, Message

        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = "message"
        told = dict(message.content.config_records[CONFIGS])
        if self.tamper is not None:
            told = self.tamper(told["stage"], node, told)
        content = message.content
        content.config_records[CONFIGS] = ConfigRecord(told)
        copy = Message(content, node, message.metadata.message_type, group_id="1")
        copy.metadata.__dict__["_message_id"] = "message"
        try:
            answer = self.app(copy, self.contexts[node])
        except Exception as error:
            self.errors.append(str(error))
            return Message(Error(1, str(error)), reply_to=copy)
        self.answers.append(answer)
        return answer

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        from flwr.app import Message

        found = []
        for one in messages:
            to, kind = one.metadata.dst_node_id, one.metadata.message_type
            found.append(self.ask(Message(deepcopy(one.content), to, kind, group_id="1")))
        return found


def play(
    plan: dr.pipeline.FederationPlan, hospitals: Path, out: Path, tamper: Any = None, **sites: Any
) -> Grid:
    """One run; raises what the analyst's app raises, with the errors of the sites in it."""
    from flwr.app import Context, RecordDict

    def site(context: Any) -> dr.pipeline.FederatedSite:
        i = context.node_config["partition-id"]
        last = context.state.config_records.get("discreet_sites", {}).get("stage")
        if i == sites.get("gone") and last == "share_keys":
            raise RuntimeError("patient 17 is not in the file")
        mine = sites.get(f"plan_{i}", plan)
        key = sites.get(f"key_{i}", KEY)
        ledger = sites["ledgers"] / f"{i}.ledger" if "ledgers" in sites else sites.get("ledger")
        return dr.pipeline.FederatedSite(
            mine, dr.pipeline.PartialAggregateFile.load(hospitals / f"{i}.tally"), key, ledger
        )

    grid = Grid(dr.pipeline.flower_client(site), tamper)
    sites.get("grids", []).append(grid)
    server = dr.pipeline.flower_server(plan, out, randomness=Seeded(3) if plan.noise == "analyst" else None)
    try:
        server(grid, Context(1, 0, {}, RecordDict(), {}))
    except RuntimeError as error:
        raise RuntimeError(f"{error}; {'; '.join(grid.errors)}") from error
    return grid


def test_the_sum_is_the_pooled_one(hospitals: Path, tmp_path: Path) -> None:
    play(plan_of(), hospitals, tmp_path / "a")
    pooled(hospitals, tmp_path / "pooled")
    assert same(tmp_path / "a", tmp_path / "pooled")


@pytest.mark.parametrize("noise", ["analyst", "sites"])
def test_a_site_drops_out(noise: str, hospitals: Path, tmp_path: Path) -> None:
    """After keys were exchanged: the sum is that of the others. Why it did is told to nobody."""
    grid = play(plan_of(noise=noise, needed=3), hospitals, tmp_path / "a", gone=3)
    assert grid.errors == ["this site does not answer: its own log says why"]
    whole = pooled(hospitals, tmp_path / "pooled", range(3))
    assert noise == "sites" or same(tmp_path / "a", tmp_path / "pooled")
    assert looks_normal(noise_in(tmp_path / "a", whole))
    assert [check.name for check in dr.verify(tmp_path / "a") if not check.ok] == []
    with pytest.raises(RuntimeError, match="fewer than 4 of 4 sites answered"):
        play(plan_of(noise=noise), hospitals, tmp_path / "b", gone=3)


def test_a_vector_on_its_way_looks_uniform(hospitals: Path, tmp_path: Path) -> None:
    """Masked entries, modulo 2^40: their leading bytes by chi-square. False alarms: ALARM."""
    from flwr.common import bytes_to_ndarray

    grid = play(plan_of(noise="sites"), hospitals, tmp_path / "a")
    sent = [
        bytes_to_ndarray(part)
        for answer in grid.answers
        for record in [answer.content.config_records[CONFIGS]]
        for part in record.get("masked_params", ())
    ]
    words = np.concatenate([one.ravel() for one in sent])
    assert words.min() >= 0
    assert words.max() < 2**40
    seen = np.bincount(words >> 36, minlength=16)
    assert stats.chisquare(seen).pvalue > ALARM
    clear = [answer.content.array_records for answer in grid.answers]
    assert all(not any(len(one) for one in records.values()) for records in clear)


def changed(stage: str, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Any:
    return lambda at, node, told: change(node, told) if at == stage else told


def drop(node: int, told: dict[str, Any]) -> dict[str, Any]:
    """A site in the sum is called dropped out, too: with both kinds of shares its own sums would be plain."""
    return {**told, "dead_nids": [*told["dead_nids"], told["active_nids"][0]]}


def alone(node: int, told: dict[str, Any]) -> dict[str, Any]:
    """Each site is told that it is nearly alone."""
    others = [one for one in told["active_nids"] if one != node]
    return {**told, "active_nids": [node, others[0]], "dead_nids": others[1:]}


def swap(node: int, told: dict[str, Any]) -> dict[str, Any]:
    """The server's own keys in place of another site's."""
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

    other = next(name for name in told if name not in ("stage", str(node)))
    pairs = [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(2)]
    return {**told, other: pairs}


LIES = {
    "both": (changed("unmask", drop), "each site must be named once"),
    "alone": (changed("unmask", alone), "2 sites in the sum: must be 3 at least"),
    "keys": (changed("share_keys", swap), "cannot be opened"),
    "fewer keys": (
        changed("share_keys", lambda node, told: dict([*told.items()][1:]) | {"stage": "share_keys"}),
        "keys of 3 sites: must be of 4",
    ),
    "threshold": (changed("setup", lambda _, told: {**told, "threshold": 2}), "threshold = 2: must be 3"),
    "range": (changed("setup", lambda _, told: {**told, "mod_range": 2**31}), "mod_range = 2147483648"),
    "shares": (
        changed(
            "collect_masked_vectors",
            lambda _, told: {**told, "srcs": told["srcs"][1:], "ctxts": told["ctxts"][1:]},
        ),
        "shares of 2 sites: must be of all 3 others",
    ),
    "stage": (changed("setup", lambda _, told: {**told, "stage": "steal"}), "stage 'steal' is none"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_learns_nothing(lie: str, hospitals: Path, tmp_path: Path) -> None:
    tamper, words = LIES[lie]
    with pytest.raises(RuntimeError, match=words):
        play(plan_of(needed=3), hospitals, tmp_path / "a", tamper)
    assert not (tmp_path / "a").exists()


def test_a_site_answers_once(hospitals: Path, tmp_path: Path) -> None:
    """In a run by its state, and in another run of the same plan by its ledger."""
    from flwr.app import ConfigRecord, Message, RecordDict

    with pytest.raises(RuntimeError, match="its own log says why"):  # all four share the ledger of one
        play(plan_of(), hospitals, tmp_path / "a", ledger=tmp_path / "ledger")
    grid = play(plan_of(name="again"), hospitals, tmp_path / "b")
    for stage in ("setup", "share_keys", "collect_masked_vectors", "unmask"):
        content = RecordDict({CONFIGS: ConfigRecord({"stage": stage})})
        assert grid.ask(Message(content, 1001, "train")).has_error()
    assert set(grid.errors) == {
        "secure aggregation: this site has sent its sums in this run, and does so once",
        "secure aggregation: stage 'unmask' does not follow 'unmask'",
    }


def test_two_processes_of_a_site_answer_once(hospitals: Path, tmp_path: Path) -> None:
    """A server that asks twice at a time, so that neither process knows of the other's answer."""
    from flwr.app import ConfigRecord, Message, RecordDict

    asked, grids = dict[str, tuple[Any, Any]](), list[Grid]()

    def watch(stage: str, node: int, told: dict[str, Any]) -> dict[str, Any]:
        if node == 1001:
            asked[stage] = deepcopy((grids[0].contexts[node], told))
        return told

    play(plan_of(), hospitals, tmp_path / "a", watch, grids=grids)
    (grid,) = grids
    for stage in ("collect_masked_vectors", "unmask"):
        grid.contexts[1001], told = asked[stage]
        assert grid.ask(Message(RecordDict({CONFIGS: ConfigRecord(told)}), 1001, "train")).has_error()
        assert grid.errors[-1] == f"secure aggregation: another process has answered {stage!r}"


def test_other_plans_and_other_secrets_do_not_meet(hospitals: Path, tmp_path: Path) -> None:
    plan = plan_of()
    for lie in ({"plan_2": replace(plan, name="of somebody else")}, {"tamper": LIES["keys"][0]}):
        with pytest.raises(RuntimeError, match="cannot be opened .* nothing was charged here"):
            play(plan, hospitals, tmp_path / "a", ledgers=tmp_path, **lie)
        for i in range(SITES):
            with Ledger.open(tmp_path / f"{i}.ledger") as ledger:
                assert [one.kind for one in ledger.entries()] == ["begin"]
    everybody = {f"plan_{i}": replace(plan, privatizer=dr.Central(epsilon=9.0, delta=1e-6)) for i in range(4)}
    with pytest.raises(RuntimeError, match="plan: the analyst's must be that of this site"):
        play(plan, hospitals, tmp_path / "a", **everybody)
    with pytest.raises(RuntimeError, match="its own log says why"):
        play(plan, hospitals, tmp_path / "a", key_1=bytes(32))
