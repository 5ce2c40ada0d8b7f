"""Record of a release in the format of the public registry of deployments of differential privacy.

The registry is opendp/deployments-registry-data on GitHub (schema of commit 3e9c812, 15 July 2026; arXiv
2509.13509). Numbers and descriptions are those of the statement. Other facts are declared in the schema,
under ``[declared]``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.core import checks
from discreet.reports.statement import SITES
from discreet.reports.statement_page import limit_words, of_contexts, said_in

STATUSES = ("Draft", "Pending")
"""Values of a record's status that authors set. The registry's board sets the other values."""
Document = Mapping[str, Any]
_REQUIRED = ("controller", "purpose", "region", "authors")
_COMPLETE = ("sector", "actors", "plan", "tuning", "justification")
_DIGITS = 6
_MODELS = {"central": "Central", "joint": "Central", "local": "Local", "shuffle": "Shuffle"}
_ACTORS = {
    "Central": "The holder of the raw data sees them and is trusted. All others see only the release and are "
    "not trusted.",
    "Local": "Nobody is trusted. Each device adds noise before it sends a message.",
    "Shuffle": "The shuffler is trusted to mix messages and not to collude with the analyst. The analyst is "
    "not trusted.",
    "Federated": "Each site sees its own raw data and is trusted with them. The sites send masked sums. The "
    "analyst sees {seen}.",
}
_SEEN = {
    "analyst": "the exact sum over all sites, is trusted with it, and adds the noise",
    "sites": "the sum over all sites with the noise of the sites",
}
_UNPROTECTED = ("users", "second group", "leaks", "unstated", "compare")


def check_protects(doc: Document) -> None:
    """Raise ``ValueError`` if the release of a statement protects no person.

    This is the case for synthetic data, for noise from a seed, for exact sums, and if the releases in the
    ledger have no finite total epsilon.

    doc : document of a statement.
    """
    guarantee = doc["guarantee"]
    if doc["synthetic"]:
        raise ValueError("folder: must be about real users; its data are synthetic")
    if guarantee["epsilon"] is None:
        raise ValueError("folder: must have a guarantee; exact sums were released")
    if guarantee["randomness"] != "secure":
        raise ValueError("folder: must have noise from the operating system; its noise is from a seed")
    if _total(doc)["epsilon"] is None:
        raise ValueError(
            "folder: must have a finite total epsilon; the ledger's total for these people is infinite"
        )


def deployment_record(
    doc: Document, declared: Mapping[str, str], status: str = "Draft", later: int = 0
) -> dict[str, Any]:
    """Return the record as plain values, in the order of the registry's schema.

    Parameters
    ----------
    doc : document of a statement that was verified.
    declared : lines that the schema declares.
    status : one of :data:`STATUSES`.
    later : number of releases of these people in the ledger after this one.

    Raises
    ------
    ValueError
        If the statement protects no person, or a line that the registry requires is not declared.
    """
    checks.choice("status", status, STATUSES)
    check_protects(doc)
    authors = _split(declared.get("authors", ""))
    found = {**declared, "authors": authors}
    missing = [f"declared.{name}" for name in _REQUIRED if not found.get(name)]
    if missing:
        raise ValueError(
            f"{', '.join(missing)}: must be declared in the schema before `learn`; the registry requires it"
        )
    sites = doc["configuration"]["options"].get(SITES)
    model = _MODELS[doc["guarantee"]["trust"]] if sites is None else "Federated"
    actors = _ACTORS[model].format(seen="" if sites is None else _SEEN[sites["noise"]])
    complete = all(name in declared for name in _COMPLETE)
    dataset, date = doc["population"]["dataset"], doc["date"][:10]
    learner, fingerprint = doc["configuration"]["algorithm"], doc["fingerprint"]
    notes = (
        "Made by `discreet registry` from a folder that verifies. Lines that the operator declared were not "
        f"checked. Fingerprint of the statement: {fingerprint}."
    )
    deployment = {
        "basic": _basic(doc, declared),
        "dp_variant": _variant(doc),
        "privacy_loss": _loss(doc, later),
        "deployment_model": {
            "model_name": model,
            "actors": declared.get("actors", actors),
            **_release_type(doc, declared),
            "data_source_type": "Static",
            "data_source_type_details": "The records were read once, from files.",
            "access_type": "Non-interactive",
            "access_type_details": "One release, made once. No later query is answered from the records.",
        },
        "accounting": {
            "post_processing": f"The learner {learner} computes policy and report from noisy sums only.",
            "composition": _listed(_composition(doc)),
        },
        "implementation": _implementation(doc, declared),
        "administrative": {
            **({"sources": declared["sources"]} if "sources" in declared else {}),
            "notes": notes,
            "registry_authors": authors,
        },
    }
    slug = "-".join(re.findall(r"[a-z0-9]+", f"{dataset} {date}".lower()))
    return {"url_slug": slug, "status": status, "tier": 3 if complete else 2, "deployment": deployment}


def _total(doc: Document) -> Mapping[str, Any]:
    """Return the numbers of all releases in the ledger or, without a ledger, of this release."""
    several = doc["ledger"] is not None and doc["ledger"]["together"]["reservations"] > 1
    return doc["ledger"]["together"] if several else doc["guarantee"]


def _split(line: str) -> list[str]:
    return [part.strip() for part in line.split(";") if part.strip()]


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _basic(doc: Document, declared: Mapping[str, str]) -> dict[str, Any]:
    people = doc["population"]
    description = (
        f"A policy for decisions in {people['horizon']} steps, with {people['states']} states and "
        f"{people['actions']} actions, and the sums from which it was computed. The sums are over "
        f"{people['users']} records (each a {people['unit']}) and have random noise. A privacy statement "
        "belongs to them."
    )
    return {
        "name": f"{people['dataset']}: policy and noisy sums",
        "data_curators": [declared["controller"]],
        "intended_use": declared["purpose"],
        "data_product_type": "Machine learning model",
        "data_product_region": declared["region"],
        "description": description,
        "publication_date": doc["date"][:10],
        **({"data_product_sector": declared["sector"]} if "sector" in declared else {}),
    }


def _variant(doc: Document) -> dict[str, Any]:
    people, said = doc["population"], said_in(doc)
    starts = tuple(said[f"not covered.{key}"].split("{")[0] for key in _UNPROTECTED)
    unprotected = [line for line in doc["not_covered"] if line.startswith(starts)]
    state = "real-valued readings" if of_contexts(doc) else f"one of {people['states']} states"
    domain = (
        f"Data sets of {people['users']} records. Largest number of episodes of one record: "
        f"{people['episodes_per_user']}. An episode has {people['horizon']} steps, each with {state}, "
        f"one of {people['actions']} actions and a bounded reward."
    )
    return {
        "variant_name": "Approximate DP" if _total(doc)["delta"] else "Pure DP",
        "data_domain": domain,
        "unprotected_quantities": _listed(unprotected) or "None is stated.",
    }


def _loss(doc: Document, later: int) -> dict[str, Any]:
    total, guarantee = _total(doc), doc["guarantee"]
    numbers = {name: float(up(total[name], _DIGITS)) for name in ("epsilon", "delta", "rho") if total[name]}
    if doc["ledger"] is None:
        details = "Of this release. No ledger was kept: other releases of these people are not known."
    else:
        number = doc["ledger"]["number"]
        details = f"Of all releases of these people in the ledger up to this one (its entry {number})."
        if total is not guarantee:
            epsilon = up(guarantee["epsilon"], _DIGITS)
            details += f" This release alone: epsilon {epsilon} at delta {up(guarantee['delta'], _DIGITS)}."
    if later:
        details += f" Later releases in the ledger, which are not counted: {later}."
    return {
        "privacy_unit": f"User-level (a {doc['population']['unit']}): {guarantee['unit']}",
        "privacy_unit_details": guarantee["neighbours"],
        "privacy_parameters": numbers,
        "privacy_parameters_details": f"{details} All numbers are rounded up.",
    }


def _release_type(doc: Document, declared: Mapping[str, str]) -> dict[str, Any]:
    ledger = doc["ledger"]
    if ledger is None:
        releases = "No ledger was kept."
    else:
        number, limit = ledger["together"]["reservations"], limit_words(ledger["after"])
        releases = f"Releases in the ledger up to this one: {number}; {limit}."
    many = _total(doc) is not doc["guarantee"]
    plan = f"{declared['plan']} {releases}" if "plan" in declared else releases
    return {"release_type": "Many releases" if many else "One release", "release_type_details": plan}


def _composition(doc: Document) -> Iterator[str]:
    yield from doc["guarantee"]["composition"]
    if _total(doc) is not doc["guarantee"]:
        yield f"All releases in the ledger: {doc['ledger']['together']['rule']}"


def _implementation(doc: Document, declared: Mapping[str, str]) -> dict[str, Any]:
    sources = (f"{fact}: {source}" for fact, source in doc["population"]["provenance"].items())
    origins = f"Declared sources of public facts: {'; '.join(sources) or 'none'}."
    tuning = declared.get("tuning", "Whether options were tuned on these data is not declared.")
    return {
        "preprocessing_and_hyperparameter_tuning": _listed((tuning, origins)),
        "mechanisms": _listed(_mechanisms(doc)),
        **({"justification": declared["justification"]} if "justification" in declared else {}),
    }


def _mechanisms(doc: Document) -> Iterator[str]:
    for one in doc["mechanisms"]:
        yield one["description"]
    if "second_group" in doc:
        yield f"Second group of users: {doc['second_group']['mechanism']['description']}"
    for source in sorted({one["source_of_randomness"] for one in doc["mechanisms"]}):
        yield f"Randomness: {source}"
    yield f"Implementation: the Python library discreet, version {doc['versions']['discreet']}"
    side = said_in(doc)["not covered.side channels"].split("{")[0]
    yield from (f"Not covered: {line}" for line in doc["not_covered"] if line.startswith(side))


# --------------------------------------------------------------------------------------------- YAML
def yaml_text(record: Mapping[str, Any]) -> str:
    """Return a record as YAML text.

    Strings are in double quotes; strings of several lines are literal blocks.

    record : nested mappings of strings, numbers and lists of strings.
    """
    return "\n".join(_lines(record, "")) + "\n"


def _lines(table: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_scalar(item)}" for item in value)
        elif isinstance(value, str) and "\n" in value:
            yield f"{indent}{key}: |-"
            yield from (f"{indent}  {line}" for line in value.split("\n"))
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: str | float) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError(f"value = {value!r}: must be finite")
    digits, e, power = repr(value).partition("e")
    return f"{digits}{'.0' if e and '.' not in digits else ''}{e}{power}"  # YAML 1.1 reads 1e-06 as a text
