"""The verifier in one file: vectors, which it and the library must meet, and folders."""

import ast
import base64
import hashlib
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browsing import chromium, violations
from closure import code_lines
from fixed_bytes import fixed_bytes

import discreet
import discreet as dr
from discreet.accounting import budget
from discreet.accounting.binomial_noise import Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
from discreet.core.count_query import CountQuery
from discreet.core.epsilon_conversions import gdp_epsilon, zcdp_epsilon
from discreet.core.guarantee import joint_loss
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, read_schema
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.ledger.ledger import Ledger
from discreet.mechanisms.linear import sensitivities
from discreet.pipeline.learn import learn, replan
from discreet.pipeline.learned_files import LearnConfig
from discreet.pipeline.synthetic_users import synthesize
from discreet.pipeline.verify import verify as verify_by_library
from discreet.reports.rule_files import read_rule
from discreet.reports.statement_schema import read_json
from tests.helpers import vitals_files

HERE = Path(discreet.__file__).parent / "checker"
VECTORS = json.loads((HERE / "vectors.json").read_text("utf-8"))
PATH = HERE / "verify_statement.py"
PAGE = HERE / "verify_statement.html"
NODE = os.environ.get("DISCREET_NODE") or shutil.which("node")

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


@pytest.fixture(scope="module")
def checker():
    """The verifier as a module that is loaded from its file."""
    spec = importlib.util.spec_from_file_location("verify_statement", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_kind(*kinds):
    return [one for one in VECTORS if one["kind"] in kinds]


def close(found, stated, tolerance=1e-12):
    assert found == pytest.approx(float(stated), rel=tolerance, abs=0.0)


def test_there_are_enough_vectors():
    assert len(VECTORS) >= 300


def test_it_is_short():
    text = PATH.read_text("utf-8")
    assert code_lines(text) <= 836  # aim: 650; benchmarks/verifier.md says what the lines are for
    assert max(map(len, text.splitlines())) <= 110


def test_it_imports_only_the_standard_library():
    tree = ast.parse(PATH.read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_closed_forms(checker):
    for one in of_kind("gaussian"):
        close(checker.gaussian_epsilon(one["mu"], one["delta"]), one["epsilon"])
        close(gdp_epsilon(one["mu"], one["delta"]), one["epsilon"])
    for one in of_kind("gaussian delta"):
        close(checker.gaussian_delta(one["mu"], one["epsilon"]), one["delta"])
        close(budget.gdp_delta(one["mu"], one["epsilon"]), one["delta"], 1e-11)
    for one in of_kind("zcdp"):
        close(checker.zcdp_epsilon(one["rho"], one["delta"]), one["epsilon"])
        close(zcdp_epsilon(one["rho"], one["delta"]), one["epsilon"])
    for one in of_kind("pure"):
        records = [{"kind": "noise", "noise": "laplace", "levels": 1, "joint": e, "exchanges": []}
                   for e in one["losses"]]  # fmt: skip
        pure, rho, _ = checker.composed(records)
        close(pure, one["epsilon"])
        close(rho, one["rho"])


@pytest.mark.parametrize("kind", ["counts", "first visits"])
def test_sensitivities_of_counts(checker, kind):
    for one in of_kind(kind):
        p = int(one["norm"][1])
        query = {"first": kind != "counts", "pooled": False, "states": one.get("states", 3)}
        query |= {name: one[name] for name in ("steps", "episodes")}
        close(checker.count_sensitivity(query, p, one["scales"]), one["joint"])
        if kind == "counts":
            names = set(one["scales"])
            asked = CountQuery(
                dr.Layout(3, 2, one["steps"]), visits="visits" in names, episodes=one["episodes"],
                center_rewards="centered_reward_sums" in names,
                known_rewards=names <= {"visits", "transition_counts"},
            )  # fmt: skip
            if set(asked.row_families) == names:
                close(joint_loss(asked, one["norm"], one["scales"]), one["joint"])


def test_sensitivities_of_linear_sums(checker):
    for one in of_kind("linear"):
        scales, bound = one["scales"], one["bound"]
        features = {"bound": bound, "l1": 1.0, "nonneg": one["nonneg"]}
        weights = {name: scale**-2 for name, scale in scales.items()}
        close(checker.question_cost(weights, features, one["states"], True, 2) ** 0.5, one["joint"])
        alpha, gamma = (
            bound**4 / scales["gram"] ** 2,
            bound**2 / scales.get("rewards", scales.get("response")) ** 2,
        )
        if one["question"] == "pair":
            close(sensitivities.pair_mu(alpha, gamma, "centred"), one["joint"])
        else:
            beta = bound**2 / scales["successors"] ** 2
            close(sensitivities.model_mu(alpha, beta, gamma, one["states"], one["nonneg"]), one["joint"])


@pytest.mark.parametrize("one", of_kind("exchange")[1::4], ids=lambda one: str(one["way"]))
def test_exchanges(checker, one):
    way = [checker.way_of(one["way"])]
    upper, limit, _ = checker.exchange_epsilon(way, one["delta"], one["lower"], (2**13, 2**14))
    assert one["lower"] * (1 - 1e-9) <= upper <= one["upper"] * (1 + 1e-5)
    assert one["lower"] * (1 - 5e-6) <= limit <= one["upper"] * (1 + 5e-6)
    assert one["upper"] <= one["lower"] * (1 + 2e-6)


PAIRED, PLAIN = Flips(300, 2, 2**29, True), Flips(500, 1, 2**30)
SHUFFLED = {
    "flips": BinomialRecord("counts", ((("visits", PLAIN), ("rewards", PAIRED)),), ((
        ("visits", 1, 2), ("visits", -1, 2), ("rewards", 1, 2), ("rewards", -1, 2)),)),
    "amplified": AmplifiedRecord("reports", ((200, 0.5), (1000, 1.0))),
    "few users": AmplifiedRecord("reports", ((10, 1.2334632184772811), (1, 0.02))),
    "one user": AmplifiedRecord("reports", ((1, 2.9),)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHUFFLED)
def test_epsilon_of_a_shuffler(checker, kind):
    """The record's epsilon agrees, and one that is 1 % smaller differs."""
    record = SHUFFLED[kind]
    for factor, expected in ((1.0, "agrees"), (0.99, "DIFFERS")):
        checker.RESULTS.clear()
        checker.check_numerical("epsilon", [record.to_dict()], 1e-6, factor * record.epsilon(1e-6))
        assert [one[-1] for one in checker.RESULTS] == [expected]


def test_laws_of_flips_and_clones_are_privacy_losses(checker):
    """E[e^-L] is the probability that P' gives to outcomes of P; flips leave out at most the ends."""
    for scale, shift in (((40, 0.25, False), 1), ((40, 0.25, True), -1), ((40, 0.5, True), 2)):
        law = checker.losses("flips", scale, shift)
        assert sum(p for _, p in law) == pytest.approx(1.0, abs=1e-4)
        assert sum(p * math.exp(-loss) for loss, p in law) == pytest.approx(1.0, abs=1e-4)
    for users, own in ((1, 1.0), (2, 0.5), (5000, 2.0)):
        law = checker.losses("clones", users, own)
        assert max(loss for loss, _ in law) <= own * (1 + 1e-12)
        assert sum(p for _, p in law) == pytest.approx(1.0, abs=1e-12)
        assert sum(p * math.exp(-loss) for loss, p in law) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("paired", [False, True])
def test_flips_have_the_binomial_distribution(checker, paired):
    """The losses of 6 flips are those of all 64 outcomes, listed one by one."""
    chances = [0.25] * 3 + [0.75 if paired else 0.25] * 3
    mass = [0.0] * 7
    for bits in itertools.product((0, 1), repeat=6):
        mass[sum(bits)] += math.prod(p if bit else 1 - p for bit, p in zip(bits, chances, strict=True))
    found = sorted(checker.losses("flips", (6, 0.25, paired), 1))
    stated = sorted((math.log(mass[x] / mass[x - 1]), mass[x]) for x in range(1, 7))
    assert np.array(found) == pytest.approx(np.array(stated), rel=1e-12)


def test_wide_noise_on_a_coarse_lattice_has_the_epsilon_of_continuous_noise(checker):
    mu = 0.01
    way = checker.way_of([("discrete_gaussian", 1e6, 10**4, 1)])
    _, limit, _ = checker.exchange_epsilon([way], 1e-6, mu, (2**12, 2**13))
    assert limit == pytest.approx(checker.gaussian_epsilon(mu, 1e-6), rel=2e-6)


def test_moments_of_discrete_noise(checker):
    """Small scales: by sums. Large scales: those of continuous noise, which are close at 10 units already."""
    for noise, scale in (("discrete_gaussian", 0.4), ("discrete_laplace", 0.7)):
        mass = {
            x: math.exp(-abs(x) / scale if "laplace" in noise else -0.5 * (x / scale) ** 2)
            for x in range(-60, 61)
        }
        total = sum(mass.values())
        second, fourth = (sum(p * x**k for x, p in mass.items()) / total for k in (2, 4))
        assert checker.moments(noise, scale) == pytest.approx((second, fourth / second**2))
    for noise in ("discrete_gaussian", "discrete_laplace"):
        near, far = checker.moments(noise, 10.0), checker.moments(noise, 10.0 + 1e-9)
        assert near == pytest.approx(far, rel=2e-3)
    assert checker.moments("discrete_gaussian", 0.01)[0] == 0.0


def outcome(checker, noise, scale, cells, values):
    """Result of the test of sums that are 0 without noise, each of which has that many cells of its own."""
    variance, kurtosis = checker.moments(noise, scale)
    places = [[("sums", (i, j)) for j in range(cells)] for i in range(len(values))]
    table = {place: value if place[1] == 0 else 0.0
             for own, value in zip(places, values, strict=True) for _, place in own}  # fmt: skip
    checker.RESULTS.clear()
    relations = [dict.fromkeys(own, 1.0) for own in places]
    checker.check_relations(relations, {"sums": table}, {"sums": checker.Noise(scale, variance, kurtosis, 1)})
    return checker.RESULTS[-1][3]


@pytest.mark.parametrize("noise", ["discrete_gaussian", "discrete_laplace"])
def test_false_alarms_of_few_sums_are_rare(checker, noise):
    """Exact chance that sums with the stated noise are found to have too little: at most 1.5e-7 a test."""
    tested = 0
    for scale, cells, count in itertools.product((0.35, 0.7, 1.0, 2.5), (1, 5), (1, 3, 6, 8, 12, 20)):
        least, most = 0, int(count * cells * checker.moments(noise, scale)[0]) + 1
        if outcome(checker, noise, scale, cells, [0.0] * count) != "DIFFERS":
            continue
        while most - least > 1:  # the largest sum of squares that differs
            middle = (least + most) // 2
            values = [math.sqrt(middle)] + [0.0] * (count - 1)
            differs = outcome(checker, noise, scale, cells, values) == "DIFFERS"
            least, most = (middle, most) if differs else (least, middle)
        x = np.arange(-60, 61)
        one = np.exp(-np.abs(x) / scale if "laplace" in noise else -0.5 * (x / scale) ** 2)
        law = np.ones(1)
        for _ in range(cells):
            law = np.convolve(law, one / one.sum())
        squares = (np.arange(len(law)) - len(law) // 2) ** 2
        chances, chance = np.bincount(squares[squares <= least], law[squares <= least]), np.ones(1)
        for _ in range(count):
            chance = np.convolve(chance, chances)[: least + 1]
        assert chance.sum() <= 1.5e-7, (scale, cells, count)
        tested += 1
    assert tested >= 5


@pytest.mark.parametrize("noise", ["discrete_gaussian", "discrete_laplace"])
def test_large_sums_differ_only_if_noise_hardly_makes_them(checker, noise):
    scale, least = 2.0, 9.0 if "gauss" in noise else 20.0
    deviation = math.sqrt(checker.moments(noise, scale)[0])
    for count in (1, 6):
        far = [deviation * (least + 4.0)] + [0.0] * (count - 1)
        assert outcome(checker, noise, scale, 1, far) == "DIFFERS"
        near = [deviation * (least - 3.0)] + [0.0] * (count - 1)
        assert outcome(checker, noise, scale, 1, near) == "not checkable"


def test_forty_batches_of_a_million_flips_take_seconds(checker):
    """All laws have at most 16 standard deviations to either side."""
    for paired in (False, True):
        law = checker.losses("flips", (10**6, 0.25, paired), 1)
        assert len(law) < 16_000
        assert sum(p for _, p in law) == pytest.approx(1.0, abs=1e-12)
        assert sum(p * math.exp(-loss) for loss, p in law) == pytest.approx(1.0, abs=1e-9)


def test_signatures(checker):
    pytest.importorskip("cryptography")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for one in of_kind("signature"):
        key, message, signature = (bytes.fromhex(one[name]) for name in ("key", "message", "signature"))
        assert checker.ed25519(key, message, signature) is one["valid"], one["case"]
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            valid = True
        except (InvalidSignature, ValueError):
            valid = False
        assert valid is one["valid"], one["case"]


def test_files(checker, tmp_path):
    for one in of_kind("refused"):
        (tmp_path / "one.json").write_text(one["text"], "utf-8")
        with pytest.raises(ValueError):
            checker.strict_json(one["text"].encode())
        if one["text"] not in ("[-0]", "[1e999]"):  # the library compares the whole text with its own
            with pytest.raises(ValueError):
                read_json(tmp_path / "one.json")
    for one in of_kind("canonical"):
        found = checker.canonical(checker.strict_json(one["text"].encode()))
        assert (found, checker.sha256(found)) == (one["canonical"], one["sha256"])


# ------------------------------------------------------------------------------ folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of counts with a ledger, made once."""
    place = tmp_path_factory.mktemp("folder")
    with Ledger.open(place / "ledger.sqlite") as ledger:
        made(place / "run", dr.learners.DPAPVI(), dr.Central(rho=0.1), ledger)
    return place / "run"


def made(out, learner, privatizer, ledger=None, users=60, settings=None, **facts):
    rng = np.random.default_rng(1)
    rows = ["user,episode,step,state,action,reward,next_state"]
    for user in range(users):
        states = rng.integers(0, 3, 5)
        states[:4] %= 3 - len(facts.get("terminal", ()))
        rows += [
            f"u{user},0,{h},{states[h]},{rng.integers(0, 2)},{rng.integers(0, 2)},{states[h + 1]}"
            for h in range(4)
        ]
    data = out.with_suffix(".csv")
    data.write_text("\n".join(rows) + "\n", "utf-8")
    schema = Schema(
        **{"dataset": "vectors", "unit": "person", **facts}, layout=dr.Layout(3, 2, 4), stationary=True
    )
    source = open_source(data, schema)
    with fixed_bytes(1):
        learn(source, learner, out, ledger=ledger, privatizer=privatizer, randomness=dr.Secure(), workers=1,
              settings=settings)  # fmt: skip


def results(checker, folder, *keys):
    return {name: result for name, _, _, result in checker.verify(folder, None, keys) if result != "agrees"}


def test_a_folder_agrees(checker, folder):
    assert results(checker, folder) == {}
    assert [check for check in verify_by_library(folder) if not check.ok] == []


@pytest.mark.parametrize(
    ("learner", "privatizer"),
    [(dr.DecisionPoints(), dr.Central(epsilon=1.0, delta=1e-6)), (dr.DPPEVI(rho=0.3), None),
     (dr.DPAPVI(), dr.Central(epsilon=1.0, delta=0.0)), (dr.DPPEVI(rho=1.0, response="model"), None)],
)  # fmt: skip
def test_other_folders_agree(checker, tmp_path, learner, privatizer):
    made(tmp_path / "run", learner, privatizer)
    assert results(checker, tmp_path / "run") == {}


def resealed(checker, folder, document):
    """Write a statement with hashes that fit."""
    for name in document["files"]:
        if (folder / name).is_file():
            document["files"][name] = checker.sha256((folder / name).read_bytes())
    plain = checker.strict_json(json.dumps(document).encode())
    kept = {k: v for k, v in plain.items() if k not in ("operator", "approval", "fingerprint")}
    document["fingerprint"] = checker.sha256(checker.canonical(kept))
    (folder / "statement.json").write_text(json.dumps(document), "utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["guarantee"].update(epsilon=d["guarantee"]["epsilon"] / 2),
        lambda d: d["mechanisms"][0]["record"].update(joint=0.1),
        lambda d: d["attacker"].update(advantage=0.01),
        lambda d: d["population"].update(users=600),
        lambda d: d["query"].update(episodes=2),
        lambda d: d["not_covered"].pop(0),
        lambda d: d["files"].pop("release.csv"),
        lambda d: d["guarantee"].update(unit="one household: all episodes of 100 users"),
        lambda d: d["guarantee"].update(neighbours="the records of any 100 users are replaced"),
        lambda d: d["guarantee"]["exceeds"].update(at_most=d["guarantee"]["exceeds"]["at_most"] / 2),
    ],
)
def test_a_changed_folder_differs(checker, folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "run")
    document = json.loads((tmp_path / "run" / "statement.json").read_text("utf-8"))
    change(document)
    resealed(checker, tmp_path / "run", document)
    assert "DIFFERS" in results(checker, tmp_path / "run").values()


def test_a_number_that_only_the_officers_page_has_differs(checker, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "officer.html"
    path.write_text(path.read_text("utf-8").replace("<h2", "<p>epsilon is 0&#46;0123</p><h2", 1), "utf-8")
    assert results(checker, tmp_path / "run") == {"officer.html: numbers": "DIFFERS"}


def test_words_of_people_may_have_decimals_and_other_letters(checker, tmp_path):
    lines = {"operator": "Büro 2.5 🙂", "approval": "vote 17.25e-3", "purpose": "Größe 3.75"}
    declared = {"controller": "Klinik 3.14, 17.55 Uhr", "contact": 'a "7.25"'}
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        made(tmp_path / "run", dr.DPAPVI(), dr.Central(rho=0.1), ledger, settings=LearnConfig(**lines),
             dataset="Süd 4.7 🙂", unit="*person* 6.5 <b>", declared=declared)  # fmt: skip
    assert results(checker, tmp_path / "run") == {}
    if NODE is not None:
        assert {row[3] for row in in_node("folders", tmp_path / "run")[0]} == {"agrees"}


def test_rules_and_synthetic_users_agree(checker, tmp_path):
    schema = {"terminal": (2,), "outcomes": {2: 1.0}}
    path = tmp_path / "rule 2.75.csv"
    path.write_text("state,action,probability\n0,0,0.123\n0,1,0.877\n1,0,0.123\n1,1,0.877\n", "utf-8")
    rule = read_rule(path, Schema("vectors", "person", dr.Layout(3, 2, 4), stationary=True, **schema))
    private = dr.Central(epsilon=3.0, delta=1e-6)
    made(
        tmp_path / "run",
        dr.DecisionPoints(),
        private,
        users=400,
        settings=LearnConfig(compare=(rule,)),
        **schema,
    )
    assert "12.3 %" in (tmp_path / "run" / "report.md").read_text("utf-8")
    synthesize(tmp_path / "run", tmp_path / "drawn.csv", 300)
    source = open_source(tmp_path / "drawn.csv", read_schema(tmp_path / "drawn.toml"), synthetic_input=True)
    with fixed_bytes(1):
        learn(source, dr.DecisionPoints(), tmp_path / "again", ledger=None, privatizer=private,
              randomness=dr.Secure(), workers=1, settings=LearnConfig(synthetic_input=True))  # fmt: skip
    folders = tmp_path / "run", tmp_path / "again"
    assert [results(checker, one) for one in folders] == [{}, {}]
    if NODE is not None:
        assert {row[3] for rows in in_node("folders", *folders) for row in rows} == {"agrees"}


def test_the_first_line_of_a_dry_run_may_say_so(checker, tmp_path):
    made(tmp_path / "run", dr.DPAPVI(), dr.Central(rho=0.1), settings=LearnConfig(synthetic=True))
    assert results(checker, tmp_path / "run") == {}
    if NODE is not None:
        assert {row[3] for row in in_node("folders", tmp_path / "run")[0]} == {"agrees"}


def test_an_entry_of_the_ledger_without_text_may_be_of_these_data(checker, tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for name in ("one", "run"):
            made(tmp_path / name, dr.learners.DPAPVI(), dr.Central(rho=0.1), ledger)
    path = tmp_path / "run" / "ledger.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert results(checker, tmp_path / "run") == {}
    del rows[1]["text"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert results(checker, tmp_path / "run")["ledger: entries without text"] == "not checkable"


def test_planning_again_keeps_the_release_that_the_ledger_marked(checker, folder, tmp_path):
    out, ledger = tmp_path / "run", folder.parent / "ledger.sqlite"
    replan(folder / "release.parquet", dr.learners.DPAPVI(), out)
    assert {result for *_, result in checker.verify(out, str(ledger), ())} == {"agrees"}
    with open(out / "release.parquet", "ab") as file:
        file.write(b"another release")
    resealed(checker, out, json.loads((out / "statement.json").read_text("utf-8")))
    assert results(checker, out) == {}  # without the ledger, nothing shows it
    rows = [(name, result) for name, _, _, result in checker.verify(out, str(ledger), ())]
    assert [name for name, result in rows if result == "DIFFERS"] == ["ledger: mark.release.parquet"]


def test_many_steps_and_tags_take_no_time(checker):
    """Different pairs, then a change of the successor only, then different pairs: all ways, step by step."""
    one, two = {(0, 0, 0)}, {(0, 0, 0)}
    for steps in range(1, 9):
        other = {(d + 1, o, e) for d, o, e in one | two}
        one, two = other | {(d, o, e + 1) for d, o, e in one}, other | {(d, o + 1, e) for d, o, e in one}
        assert checker.ways_of(steps) == one | two
    assert len(checker.ways_of(400)) > 40_000


def test_too_little_noise_differs(checker, folder, tmp_path):
    """Flows of transitions tell noise from data: here all noise is removed, and 36 relations hold exactly."""
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "release.csv"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(
        line.rpartition(",")[0] + ",10.0" if line.startswith("transition") else line for line in lines
    ) + "\n", "utf-8")  # fmt: skip
    resealed(checker, tmp_path / "run", json.loads((tmp_path / "run" / "statement.json").read_text("utf-8")))
    assert results(checker, tmp_path / "run")["size of the noise"] == "DIFFERS"


def test_the_command(checker, folder, tmp_path, capsys):
    assert checker.main([str(folder), "--json"]) == 0
    assert all(one["result"] == "agrees" for one in json.loads(capsys.readouterr().out))
    assert checker.main([str(folder), "--public-key", "0" * 64]) == 1
    *lines, count, wrong, last = capsys.readouterr().out.splitlines()
    assert len(lines) > 100
    assert not [line for line in lines if "\\d" in line]
    assert "1 differ." in count
    assert (wrong, last) == ("Wrong: signed with the given key.", "Do not rely on this statement.")
    assert checker.main([str(tmp_path / "none")]) == 2
    assert "there is no statement.json" in capsys.readouterr().out


# One learner of each kind of query, and a sum whose noise a forged record leaves out.
QUERIES = {
    "counts": (dr.DPAPVI(), dr.Central(rho=0.1), "transition_counts"),
    "first visits": (dr.DecisionPoints(), dr.Central(rho=0.1), "visits"),
    "linear sums": (dr.DPPEVI(rho=0.5, response="model"), None, "1.successors[2]"),
    "contexts": (None, None, "0.response[0]"),
}


@pytest.fixture(scope="module")
def asked(checker, folder, tmp_path_factory):
    """One folder for each kind of query."""
    place = tmp_path_factory.mktemp("asked")
    for name, (learner, privatizer, _) in QUERIES.items():
        if learner is None:
            source = open_source(vitals_files.frame(), vitals_files.schema(False))
            learn(source, LinearAdvantage(), place / name, privatizer=dr.Central(epsilon=3.0, delta=1e-4),
                  ledger=None, randomness=dr.Seeded(0, 0), judge_share=0.5, workers=1)  # fmt: skip
        else:
            made(place / name, learner, privatizer)
        expected = {"size of the noise": "not checkable"} if name == "contexts" else {}
        assert results(checker, place / name) == expected
    return place


def changed(checker, folder, out, *changes):
    """Copy a folder, change its statement, make the hashes fit, and return what does not agree."""
    shutil.copytree(folder, out)
    document = json.loads((out / "statement.json").read_text("utf-8"))
    for change in changes:
        change(document)
    resealed(checker, out, document)
    return results(checker, out)


@pytest.mark.parametrize("kind", QUERIES)
def test_a_sum_that_has_no_noise_in_the_record_differs(checker, asked, tmp_path, kind):
    def silent(document):
        record, silenced = document["mechanisms"][0]["record"], QUERIES[kind][2]
        for part in (record, document["guarantee"]["mechanisms"][0]):
            del part["scales"][silenced], part["sensitivities"][silenced]
        mechanism = document["mechanisms"][0]
        mechanism["families"] = [one for one in mechanism["families"] if one["family"] != silenced]
        find = (
            checker.linear_sensitivity if "sums" in document["query"]["kind"] else checker.count_sensitivity
        )
        for part in (record, document["guarantee"]["mechanisms"][0]):
            part["joint"] = find(document["query"], 2, record["scales"])

    found = changed(checker, asked / kind, tmp_path / "run", silent)
    assert found["sums with noise"] == "DIFFERS"
    assert "record.joint" not in found


@pytest.mark.parametrize("kind", QUERIES)
def test_the_query_is_that_of_the_population(checker, asked, tmp_path, kind):
    for number, (name, value) in enumerate({"steps": 2, "states": 2, "episodes": 2, "first": True}.items()):

        def change(document, name=name, value=value):
            document["query"][name] = value

        found = changed(checker, asked / kind, tmp_path / str(number), change)
        if (kind, name) not in (("first visits", "first"), ("contexts", "states")):
            assert found[f"query.{name}"] == "DIFFERS"


def test_fewer_steps_also_in_population_and_schema_differ(checker, folder, tmp_path):
    def change(document):
        document["query"]["steps"] = document["population"]["horizon"] = 2
        path = tmp_path / "run" / "schema.toml"
        path.write_text(path.read_text("utf-8").replace("horizon = 4", "horizon = 2"), "utf-8")

    assert changed(checker, folder, tmp_path / "run", change)["release.csv.steps"] == "DIFFERS"


def test_too_little_noise_in_linear_sums_differs(checker, asked, tmp_path):
    """Successors get no noise, and Gram matrices keep theirs."""

    def change(document):
        path = tmp_path / "run" / "release.csv"
        lines = path.read_text("utf-8").splitlines()
        exact = [line.rpartition(",")[0] + ",0.25" if ".successors" in line else line for line in lines]
        path.write_text("\n".join(exact) + "\n", "utf-8")

    found = changed(checker, asked / "linear sums", tmp_path / "run", change)
    assert found["size of the noise"] == "DIFFERS"


def test_too_little_noise_in_sums_of_contexts_differs(checker, asked, tmp_path):
    def change(document):
        mechanism = document["mechanisms"][0]
        for record in (mechanism["record"], document["guarantee"]["mechanisms"][0]):
            record["scales"] = {name: 1000 * scale for name, scale in record["scales"].items()}

    found = changed(checker, asked / "contexts", tmp_path / "run", change)
    assert found["values not below the noise: response 0"] == "DIFFERS"


def test_one_hot_features_are_known_by_their_hash(checker, asked):
    query = json.loads((asked / "linear sums" / "statement.json").read_text("utf-8"))["query"]
    assert checker.one_hot(query)
    assert not checker.one_hot({**query, "states": 4})
    assert not checker.one_hot({**query, "features": {"sha256": "0" * 64}})
    for kind in ("counts", "contexts"):
        assert not checker.one_hot(json.loads((asked / kind / "statement.json").read_text("utf-8"))["query"])


@pytest.mark.parametrize(
    "name", ["statement.json", "schema.toml", "release.csv", "report.json", "ledger.jsonl"]
)
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_only_regular_files_are_read(checker, folder, tmp_path, name, kind):
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / name
    path.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "moved")
    assert checker.main([str(tmp_path / "run")]) == 1


def test_a_device_is_not_a_ledger(checker, folder):
    found = {name: result for name, *_, result in checker.verify(folder, "/dev/zero")}
    assert found["ledger"] == "DIFFERS"


def test_a_large_file_is_not_read(checker, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    os.truncate(tmp_path / "run" / "release.csv", 2**30 + 1)
    assert results(checker, tmp_path / "run")["files"] == "not checkable"


@pytest.mark.parametrize(
    ("learner", "privatizer", "users", "unable"),
    [
        (dr.DecisionPoints(), dr.Central(epsilon=1e-3, delta=1e-6), 60, ()),
        (dr.DecisionPoints(), dr.Central(epsilon=1e-3, delta=0.0), 60, ()),
        (dr.DecisionPoints(), dr.Central(epsilon=50.0, delta=0.0), 60, ("size of the noise",)),
        (dr.DPAPVI(), dr.Central(epsilon=1.0, delta=0.1), 2, ()),
        (dr.DPAPVI(), dr.Central(epsilon=1e-3, delta=1e-6, noise="laplace"), 60, ()),
        (dr.DPAPVI(), dr.Central(epsilon=50.0, delta=1e-6, noise="laplace"), 60, ("size of the noise",)),
        (dr.DPPEVI(epsilon=50.0, delta=1e-6), None, 60, ()),
    ],
)  # fmt: skip
def test_honest_folders_at_the_edges_do_not_differ(checker, tmp_path, learner, privatizer, users, unable):
    made(tmp_path / "run", learner, privatizer, users=users)
    assert results(checker, tmp_path / "run") == dict.fromkeys(unable, "not checkable")


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, []),
        ({"scale": 8.0}, ["second group.joint"]),
        ({"scale": 2.0, "joint": 1.0}, ["second group: loss, and that of the release"]),
        ({"sensitivity": 1.0}, ["second group.sensitivities.clipped_answers"]),
        ({"users": 41}, ["users of both groups", "covered: both groups"]),
        ({"share": 0.5}, ["second group.share"]),
        ({"noise": "discrete_laplace", "std": 4.0 * 2**0.5}, ["second group.noise"]),
    ],
)
def test_a_second_group_loses_at_most_what_the_release_does(checker, changed, differs):
    one = {
        "scale": 4.0, "joint": 0.5, "sensitivity": 2.0, "users": 40, "share": 0.4,
        "noise": "discrete_gaussian", "std": changed.get("scale", 4.0), **changed,
    }  # fmt: skip
    record = {
        "kind": "noise", "noise": one["noise"], "scales": {"clipped_answers": one["scale"]}, "levels": 1,
        "sensitivities": {"clipped_answers": one["sensitivity"]}, "joint": one["joint"], "exchanges": [],
    }  # fmt: skip
    family = {"family": "clipped_answers"} | {name: one[name] for name in ("sensitivity", "scale", "std")}
    mechanism = {"record": record, "loss": one["joint"], "families": [family],
                 "source_of_randomness": "operating system"}  # fmt: skip
    second = {"users": one["users"], "users_of_release": 60, "share": one["share"], "mechanism": mechanism}
    checker.RESULTS.clear()
    checker.check_second_group({
        "second_group": second, "population": {"users": 100}, "guarantee": {"randomness": "secure"},
        "mechanisms": [{"loss": 0.5, "record": {"noise": "discrete_gaussian"}}],
        "covered": ["People are in two groups: 60 in the release, and 40 whose answers were added up."],
        "configuration": {"options": {"judge_share": 0.4}},
    })  # fmt: skip
    assert [one[0] for one in checker.RESULTS if one[-1] == "DIFFERS"] == differs


# ------------------------------------------------------------------------------ the page


def test_the_page_forbids_every_connection():
    page = PAGE.read_text("utf-8")
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)[1]
    hashes = [
        base64.b64encode(
            hashlib.sha256(re.search(f"<{tag}>(.*)</{name}>", page, re.DOTALL)[1].encode()).digest()
        )
        for tag, name in (('script type="module"', "script"), ("style", "style"))
    ]  # a changed script needs the hash that this test prints
    script, style = (f"'sha256-{one.decode()}'" for one in hashes)
    assert policy == (
        f"default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(
        r"https?:|\b(fetch|XMLHttpRequest|WebSocket|sendBeacon|EventSource|import)\b\s*[(;]", page
    )


def in_node(kind, *paths):
    if NODE is None:
        pytest.skip("no node")
    command = [NODE, Path(__file__).with_name("page.mjs"), PAGE, kind, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_meets_all_vectors():
    names = {
        "gaussian": ["epsilon"], "zcdp": ["epsilon"], "gaussian delta": ["delta"], "pure": ["epsilon", "rho"],
        "signature": ["valid"], "refused": [], "canonical": ["canonical", "sha256"],
    }  # fmt: skip
    for one, found in zip(VECTORS, in_node("vectors", HERE / "vectors.json"), strict=True):
        if one["kind"] == "exchange":
            upper, limit = found
            assert one["lower"] * (1 - 1e-9) <= upper <= one["upper"] * (1 + 1e-5)
            assert one["lower"] * (1 - 5e-6) <= limit <= one["upper"] * (1 + 5e-6)
        elif one["kind"] in ("signature", "refused", "canonical"):
            stated = [one[name] for name in names[one["kind"]]] or [None]
            assert (found if isinstance(found, list) else [found]) == stated, one
        else:
            stated = [one[name] for name in names.get(one["kind"], ["joint"])]
            for x, y in zip(found if isinstance(found, list) else [found], stated, strict=True):
                close(x, y)


@pytest.fixture(scope="module")
def forged(checker, folder, tmp_path_factory):
    """Forged folders: changed numbers, removed noise, and a file that nobody named."""
    place, found = tmp_path_factory.mktemp("forged"), []
    for number, (name, edit) in enumerate({
        "statement.json": lambda text: text.replace('"epsilon": ', '"epsilon": 1', 1),
        "release.csv": lambda text: text.replace("counts,0,0,0,0,", "counts,0,0,0,0,9e"),
        "schema.toml": lambda text: text.replace("horizon = 4", "horizon = 5"),
        "ledger.jsonl": lambda text: text.replace("vectors", "other"), "extra.txt": lambda text: "x",
    }.items()):  # fmt: skip
        found.append(place / str(number))
        shutil.copytree(folder, found[-1])
        path = found[-1] / name
        path.write_text(edit(path.read_text("utf-8") if path.exists() else ""), "utf-8")
        if name != "extra.txt":
            document = json.loads((found[-1] / "statement.json").read_text("utf-8"))
            resealed(checker, found[-1], document)
    return found


def test_the_page_finds_what_the_file_finds(checker, folder, forged):
    for place, rows in zip([folder, *forged], in_node("folders", folder, *forged), strict=True):
        one = [(name, result) for name, _, _, result in checker.verify(place)]
        other = [(name, result) for name, _, _, result in rows]
        assert other == one
        assert ("DIFFERS" in {result for _, result in one}) == (place != folder)


def test_the_page_in_a_browser_sends_nothing(folder, forged):
    with chromium() as browser:
        page = browser.new_context(offline=True).new_page()
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda line: said.append(line.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(PAGE.as_uri())
        for place, words in ((folder, "all agree"), (forged[0], "differ. Do not rely")):
            page.locator("#folder").set_input_files(place)
            page.locator("#say").filter(has_text=words).wait_for(timeout=120_000)
            assert page.locator("#rows tr").count() > 100
        box = page.locator("#drop").bounding_box()
        place = {"x": box["x"] + 20, "y": box["y"] + 20}
        data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            page.context.new_cdp_session(page).send(
                "Input.dispatchDragEvent", {"type": kind, "data": data, **place}
            )
        page.locator("#say").filter(has_text="all agree").wait_for(timeout=120_000)
        assert asked == [PAGE.as_uri()]
        assert said == []
        failed = page.evaluate("fetch('https://example.org').then(() => false, () => true)")
        assert failed
        assert any("Content Security Policy" in line for line in said)
        assert violations(page) == []
