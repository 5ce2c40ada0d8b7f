"""The record for the deployment registry: schema, numbers, and what is refused."""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import REGISTRY_LINES, SECTORS, Schema
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.pipeline.learn import learn
from discreet.pipeline.synthetic_data import write_made_up
from discreet.reports.deployment_record import STATUSES, check_protects, deployment_record, yaml_text

pytestmark = pytest.mark.usefixtures("figures_are_sketched")

NEEDED = {"controller": 'Hospital "H": <&> 😀 #', "purpose": "- better care", "region": "Austria",
          "authors": "A. Smith; B. Weber"}  # fmt: skip
MORE = {"sector": "Healthcare", "actors": "analysts", "plan": "none", "tuning": "no",
        "justification": "a study", "sources": "a report"}  # fmt: skip

# Facts of the registry's schema (opendp/deployments-registry-data, commit 3e9c812): keys, types, values
_TEXTS = ("name", "intended_use", "data_product_region", "description", "publication_date")
SCHEMA: dict[str, Any] = {
    "url_slug": str,
    "status": {"Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)",
               "Approved (Pending)"},
    "tier": {1, 2, 3},
    "deployment": {
        "basic": {
            **dict.fromkeys(_TEXTS, str), "data_curators": list, "data_product_sector": set(SECTORS),
            "data_product_type": {"Summary statistics", "Machine learning model", "Dataset", "Synthetic data",
                                  "Interactive API", "SQL queries"},
        },
        "dp_variant": {
            "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
            "data_domain": str, "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str, "privacy_unit_details": str, "privacy_parameters_details": str,
            "privacy_parameters": {"epsilon": float, "delta": float, "rho": float},
        },
        "deployment_model": {
            "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"}, "model_name_details": str,
            "actors": str, "release_type": {"One release", "Many releases"}, "release_type_details": str,
            "data_source_type": {"Static", "Dynamic"}, "data_source_type_details": str,
            "access_type": {"Interactive", "Non-interactive"}, "access_type_details": str,
        },
        "accounting": {"post_processing": str, "composition": str},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str, "mechanisms": str, "justification": str,
        },
        "administrative": {"sources": str, "notes": str, "registry_authors": list},
    },
}  # fmt: skip
REQUIRED = {"": {"url_slug", "status", "tier", "deployment"}, "/deployment": {"basic"},
            "/deployment/basic": {*_TEXTS, "data_curators", "data_product_type"},
            "/deployment/administrative": {"registry_authors"}}  # fmt: skip


def schema_errors(value: Any, rule: Any = SCHEMA, path: str = "") -> Iterator[str]:
    """Places where a record violates the registry's schema."""
    if isinstance(rule, dict):
        yield from (f"{path}/{key}: missing" for key in REQUIRED.get(path, set()) - set(value))
        for key, item in value.items():
            if key not in rule:
                yield f"{path}/{key}: unknown"
            else:
                yield from schema_errors(item, rule[key], f"{path}/{key}")
    elif isinstance(rule, set):
        if value not in rule:
            yield f"{path}: {value!r}"
    elif not isinstance(value, rule) or (
        rule is list and not (value and all(isinstance(x, str) for x in value))
    ):
        yield f"{path}: {value!r}"


def leaves(value: Any) -> int:
    return sum(map(leaves, value.values())) if isinstance(value, Mapping) else 1


def schema_of(**declared: str) -> Schema:
    facts = {"states": "literature", "actions": "this data"}
    return Schema("ward 3", "patient", Layout(4, 2, 3), provenance=facts, declared=declared)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Statements: first and second in one ledger, pure, a bound on rho, seeded, and exact."""
    here, schema = tmp_path_factory.mktemp("records"), schema_of(**NEEDED)
    write_made_up(schema, 60, here / "rows.parquet", seed=1)
    source = open_source(here / "rows.parquet", schema)
    small = dr.Central(epsilon=1.0, delta=1e-6)
    with Ledger.open(here / "ledger.sqlite") as ledger:
        learn(source, DPAPVI(), here / "first", privatizer=small, ledger=ledger)
        ledger.set_limit("ward 3", 3.0, 1e-6)
        learn(source, DPAPVI(), here / "second", privatizer=small, ledger=ledger)
    learn(source, DPAPVI(), here / "pure", privatizer=dr.Central(epsilon=1.0), ledger=None)
    learn(source, DPAPVI(), here / "rho", privatizer=dr.Central(rho=0.1), ledger=None)
    learn(source, DPAPVI(), here / "seeded", privatizer=small, ledger=None, randomness=dr.Seeded(1))
    learn(source, APVI(), here / "exact", ledger=None)
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in here.glob("*/statement.json")}


@pytest.mark.parametrize("declared", [NEEDED, {**NEEDED, **MORE}], ids=["needed", "all"])
@pytest.mark.parametrize("name", ["first", "second", "pure", "rho"])
def test_records_fit_the_schema(docs: dict[str, Any], name: str, declared: dict[str, str]) -> None:
    record = deployment_record(docs[name], declared)
    assert list(schema_errors(record)) == []
    assert leaves(record) >= (34 if len(declared) > 4 else 29)
    assert record["tier"] == (3 if len(declared) > 4 else 2)
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(yaml_text(record)) == record


def test_numbers_are_of_all_releases_and_rounded_up(docs: dict[str, Any]) -> None:
    found = deployment_record(docs["second"], NEEDED)["deployment"]
    total, numbers = docs["second"]["ledger"]["together"], found["privacy_loss"]["privacy_parameters"]
    assert total["reservations"] == 2
    for name, value in numbers.items():
        assert value * (1 + 1e-9) >= total[name]
        assert value == pytest.approx(total[name], rel=1e-5)
    assert numbers["epsilon"] > docs["second"]["guarantee"]["epsilon"]
    model = found["deployment_model"]
    assert model["release_type"] == "Many releases"
    assert (
        "Releases in the ledger up to this one: 2; limit ε = 3 at δ = 1e-06, not signed."
        in (model["release_type_details"])
    )
    assert "All releases in the ledger: zCDP" in found["accounting"]["composition"]
    assert found["basic"]["data_curators"] == [NEEDED["controller"]]
    assert found["administrative"]["registry_authors"] == ["A. Smith", "B. Weber"]
    unprotected = found["dp_variant"]["unprotected_quantities"]
    assert unprotected.count("\n") == 2  # people, actions, facts of unstated origin
    assert "Facts that were taken from this data: actions." in unprotected
    pure = deployment_record(docs["pure"], NEEDED)["deployment"]
    assert pure["dp_variant"]["variant_name"] == "Pure DP"
    assert "delta" not in pure["privacy_loss"]["privacy_parameters"]
    assert "No ledger was kept" in pure["privacy_loss"]["privacy_parameters_details"]
    assert deployment_record(docs["rho"], NEEDED)["deployment"]["privacy_loss"]["privacy_parameters"][
        "rho"
    ] == (pytest.approx(docs["rho"]["guarantee"]["rho"], rel=1e-5))


@pytest.mark.parametrize(
    ("trust", "model", "words"),
    [
        ("local", "Local", "Nobody is trusted"),
        ("shuffle", "Shuffle", "The shuffler is trusted"),
        ("joint", "Central", "The holder of the raw data"),
        ("sites", "Federated", "sees the sum over all sites with the noise"),
        ("analyst", "Federated", "sees the exact sum over all sites"),
    ],
)
def test_trust_models(docs: dict[str, Any], trust: str, model: str, words: str) -> None:
    doc = copy.deepcopy(docs["first"])
    if model == "Federated":
        doc["configuration"]["options"]["sites"] = {"noise": trust}
    else:
        doc["guarantee"]["trust"] = trust
    record = deployment_record(doc, NEEDED, "Pending")
    assert list(schema_errors(record)) == []
    assert record["deployment"]["deployment_model"]["model_name"] == model
    assert words in record["deployment"]["deployment_model"]["actors"]


@pytest.mark.parametrize("name", NEEDED)
def test_required_lines_are_named(docs: dict[str, Any], name: str) -> None:
    declared = {key: said for key, said in NEEDED.items() if key != name}
    with pytest.raises(ValueError, match=rf"^declared\.{name}: must be declared in the schema"):
        deployment_record(docs["first"], declared)


def test_empty_authors_and_a_wrong_status(docs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^declared\.authors: "):
        deployment_record(docs["first"], {**NEEDED, "authors": " ; "})
    for status in sorted(SCHEMA["status"] - set(STATUSES)):
        with pytest.raises(ValueError, match=r"^status = "):
            deployment_record(docs["first"], NEEDED, status)


def test_what_protects_nobody_is_refused(docs: dict[str, Any]) -> None:
    endless = copy.deepcopy(docs["second"])
    endless["ledger"]["together"]["epsilon"] = None
    cases = {"exact sums": docs["exact"], "from a seed": docs["seeded"], "finite total": endless,
             "synthetic": {**docs["first"], "synthetic": True}}  # fmt: skip
    for words, doc in cases.items():
        with pytest.raises(ValueError, match=words):
            check_protects(doc)


def test_yaml_numbers_and_texts() -> None:
    yaml = pytest.importorskip("yaml")
    table = {
        "a": 1e-06,
        "b": 2.5e-7,
        "c": 1e22,
        "d": 3.0,
        "e": 2,
        "f": "1e-06",
        "g": ": #\\ ' \"",
        "h": "x\n- y: z",
    }
    assert yaml.safe_load(yaml_text(table)) == table
    with pytest.raises(ValueError, match="must be finite"):
        yaml_text({"a": float("inf")})


def test_declared_lines_are_checked_and_kept(tmp_path: Path) -> None:
    from discreet.data.schema import read_schema, write_schema

    told = schema_of(**NEEDED, **MORE)
    assert set(REGISTRY_LINES) <= set(told.declared)
    write_schema(told, tmp_path / "told.toml")
    assert read_schema(tmp_path / "told.toml").hash == told.hash != schema_of(**NEEDED).hash
    with pytest.raises(
        ValueError, match=r"declared\.sector = 'health': must be one of 'Technology', 'Healthcare'"
    ):
        schema_of(sector="health")
    with pytest.raises(ValueError, match="declared key = 'sectors'"):
        schema_of(sectors="Healthcare")
