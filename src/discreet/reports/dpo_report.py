"""Page for a data protection officer: the privacy statement in plain words, and questions for the officer.

The page depends only on ``statement.json``. Its points paraphrase NIST SP 800-226 (March 2025). A point is
answered if the statement contains the answer, and is otherwise a question. All numbers are rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.data.synthetic_mark import SYNTHETIC_INPUT
from discreet.reports.published_epsilons import PUBLISHED
from discreet.reports.statement_page import (
    hundredths,
    limit_words,
    never_certain,
    of_contexts,
    said_in,
    times,
)
from discreet.reports.verdict_text import NOT_EXCLUDED, not_excluded, verdict_line, verdict_words
from discreet.utils.document import (
    Blank,
    Block,
    Bullets,
    Heading,
    Line,
    Link,
    NameValueList,
    Paragraph,
    Table,
    html_lines,
    markdown_lines,
)

OFFICER_NAME, HTML_NAME = "officer.md", "officer.html"
NIST = "https://csrc.nist.gov/pubs/sp/800/226/final"
_UNSTATED = "not stated"
_VERDICT = "The verdict on the policy"
Document = Mapping[str, Any]


def officer_markdown(doc: Document) -> list[Line]:
    """Return the lines of the page in Markdown."""
    return markdown_lines(list(_blocks(doc)))


def officer_html(doc: Document) -> list[Line]:
    """Return the lines of the page in HTML."""
    return html_lines(_title(doc), list(_blocks(doc)))


def _title(doc: Document) -> str:
    return f"For the data protection officer: {doc['population']['dataset']}"


def _blocks(doc: Document) -> Iterator[Block]:
    signed = doc["fingerprint"], doc["operator"], doc["approval"]
    return page(doc, _title(doc), _fields(doc), glossary(doc), signed)


def page(
    doc: Document,
    title: str,
    fields: Iterable[tuple[str, str]],
    terms: Iterable[tuple[str, str]],
    signed: tuple[str, str, str],
    *,
    made: str = "statement.json",
    checked: str = "discreet verify",
    read: str = "statement.md",
    own: Mapping[str, str] | None = None,
) -> Iterator[Block]:
    """Yield the blocks of the page about a release of a policy or of a codebook.

    Parameters
    ----------
    doc : document that states the facts about the release.
    title : title of the page.
    fields : names and strings that describe the release.
    terms : names and explanations of the terms in the glossary.
    signed : fingerprint, line of the operator, and line of the approver.
    made : file whose numbers the page repeats.
    checked : command that checks the page.
    read : other file that the signer has to read.
    own : answers to points of NIST's list, by title of the point. They replace the answers about a policy.
    """
    said = {key.removeprefix("officer."): text for key, text in said_in(doc).items()}
    yield Heading(1, title)
    yield Paragraph(said["made"].format(made=made, checked=checked))
    yield Heading(2, said["heading, sentence"])
    yield Paragraph(doc["sentence"], strong=True)
    if doc["warnings"]:
        yield Bullets(tuple(doc["warnings"]))
    yield Heading(2, said["heading, done"])
    yield NameValueList(tuple(fields))
    yield Heading(2, said["heading, promise"])
    yield from _promise(doc)
    if doc.get("verdict") is not None:
        yield Heading(2, _VERDICT)
        model = SYNTHETIC_INPUT in doc["configuration"]["options"]
        yield Paragraph(verdict_line(doc["verdict"], doc["synthetic"], model, doc["version"]))
        yield Paragraph(f"{NOT_EXCLUDED}. {not_excluded(doc['verdict']['kind'])}")
    yield Heading(2, said["heading, words"])
    yield NameValueList(tuple(terms))
    yield Heading(2, said["heading, compared"])
    yield from _compared(doc, read)
    yield Heading(2, "Points of NIST SP 800-226")
    yield from _points(doc, own or {})
    yield Heading(2, "Signatures")
    fingerprint, operator, approval = signed
    yield Paragraph(said["signing"].format(read=read, fingerprint=fingerprint))
    yield Blank("Operator", operator)
    yield Blank("Approval (of this fingerprint)", approval)
    for label in (
        "Data protection officer, name",
        "Decision, and its conditions",
        "Place and date",
        "Signature",
    ):
        yield Blank(label)


# --------------------------------------------------------------------------------------- what was declared
def declared_fields(doc: Document, declared: Document, unnamed: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the names and strings of declared facts, for example the users, the controller and the purpose.

    - declared : declarations of the schema.
    - unnamed : True if no purpose was given for the release.
    """
    people, said = doc["population"], said_in(doc)

    def stated(name: str) -> str:
        return declared[name] or _UNSTATED

    yield "Population (data set)", people["dataset"]
    yield (
        "People",
        (
            f"{people['users']} (each a {people['unit']}); the number is public"
            if people["users_public"]
            else f"{people['users']} (each a {people['unit']})"
        ),
    )
    yield "Controller", stated("controller")
    yield "Contact", stated("contact")
    yield "Purpose of the processing", stated("purpose")
    yield "Purpose of this release", _UNSTATED if unnamed else doc["purpose"]
    yield "Legal basis", stated("legal_basis")
    yield said["officer.recipients"], stated("recipients")
    yield "Retention of the raw data", stated("retention")
    yield "Columns of the records that form a person", stated("columns")


def read_columns(doc: Document) -> list[str]:
    """Return the names of the columns that were read."""
    unread = set() if doc["data"]["reward"]["source"] == "column" else {"reward"}
    if of_contexts(doc):
        unread.add("next_state")
    return [name for part, name in doc["data"]["columns"].items() if part not in unread]


def _fields(doc: Document) -> Iterator[tuple[str, str]]:
    people, data, guarantee, said = doc["population"], doc["data"], doc["guarantee"], said_in(doc)
    unnamed = doc["purpose"] in ("", f"learn, {doc['configuration']['algorithm']}")  # the default purpose
    yield from declared_fields(doc, data["declared"], unnamed)
    yield "Columns of the rows that were read", ", ".join(read_columns(doc))
    m = people["episodes_per_user"]
    record = said["officer.record, contexts" if of_contexts(doc) else "officer.record, text"].format(
        **people, m=m, s="s" if m > 1 else ""
    )
    yield said["officer.record"], record + _group_of(people, said)
    yield "Reward of one step", _reward(data["reward"], said)
    yield (
        "Return of one episode",
        f"from {data['reward']['return_low']:g} to {data['reward']['return_high']:g}",
    )
    sources = [f"{fact}: {source}" for fact, source in people["provenance"].items()]
    yield said["officer.provenance"], "; ".join(sources) or _UNSTATED
    noise = "with noise" if guarantee["epsilon"] is not None else "of exact sums"
    yield "Method", said["officer.method"].format(algorithm=doc["configuration"]["algorithm"], noise=noise)
    trust = guarantee["trust"]
    yield "Trust", said["officer.trust"] if trust == "central" else trust
    yield "Date", doc["date"]


def _group_of(people: Document, said: Mapping[str, str]) -> str:
    groups = people.get("groups")
    if groups is None:
        return ""
    return said["officer.group"].format(number=len(groups["labels"]), labels=", ".join(groups["labels"]))


def _reward(reward: Document, said: Mapping[str, str]) -> str:
    if reward["source"] == "outcomes":
        paid = ", ".join(f"{label} {earned:g}" for label, earned in reward["outcomes"].items())
        left = reward.get("censored")  # statements of earlier versions do not have this key
        more = "" if left is None else said["officer.censored"].format(left=left)
        return said["officer.outcomes"].format(paid=paid, more=more)
    ends = f"from {reward['low']:g} to {reward['high']:g}"
    if reward["source"] == "known":
        return f"{ends}, public; no column is read"
    return said["officer.column"].format(ends=ends)


# ------------------------------------------------------------------------------------------- the promise
def _number(value: float | None) -> str:
    return "none" if value is None else up(value)


def _promise(doc: Document) -> Iterator[Block]:
    """Yield the blocks with the numbers of the guarantee, for this release and all releases in the ledger."""
    guarantee, alone, ledger, said = doc["guarantee"], doc["alone"], doc["ledger"], said_in(doc)
    if guarantee["epsilon"] is None:
        yield Paragraph(said["officer.no promise"], strong=True)
        return
    head = [said["officer.what"], "this release"]
    own = doc["attacker"] if alone is None else alone
    columns = [(guarantee, own)]
    if alone is not None:
        head.append(said["officer.all releases"].format(releases=ledger["together"]["reservations"]))
        columns.append((ledger["together"], doc["attacker"]))
    rows = [
        ["ε (epsilon)", *(_number(one["epsilon"]) for one, _ in columns)],
        ["δ (delta)", *(up(one["delta"], 3) for one, _ in columns)],
        ["ρ (zCDP)", *(_number(one["rho"]) for one, _ in columns)],
        [_row(said, columns), *(_times(one["epsilon"], said) for one, _ in columns)],
        [said["officer.right guesses"], *(hundredths(_coin(bound)) for _, bound in columns)],
        [said["officer.advantage"], *(f"{hundredths(bound['advantage'])} %" for _, bound in columns)],
    ]
    if any(one["mu"] is not None for one, _ in columns):
        rows.insert(3, ["μ (Gaussian DP)", *(_number(one["mu"]) for one, _ in columns)])
    yield Table(said["officer.table"], tuple(head), tuple(map(tuple, rows)))
    if ledger is None:
        yield Paragraph(said["officer.no ledger"], strong=True)
        return
    new, limit = ", new with this release" if ledger["new"] else "", limit_words(ledger["after"])
    yield Paragraph(said["officer.ledger"].format(**{**ledger, "new": new, "limit": limit}))


def _row(said: Mapping[str, str], columns: Iterable[tuple[Document, Document]]) -> str:
    """Return the label of the table row with e^epsilon.

    - said : sentence templates.
    - columns : for each column, the guarantee or totals, and the bounds on the attacker.
    """
    several = any(one["delta"] for one, _ in columns)
    return said["row"].format(plus=said["epsilon, plus"] if several else "")


def _times(epsilon: float | None, said: Mapping[str, str]) -> str:
    return "no bound" if epsilon is None else times(epsilon, said)


def _coin(attacker: Document) -> float:
    """Return the probability that an attacker guesses correctly between two equally likely records."""
    return {row["prior"]: float(row["right_guess"]) for row in attacker["priors"]}[0.5]


# ------------------------------------------------------------------------------------------- the words
def _symbols(
    guarantee: Document, unit: str, said: Mapping[str, str], never: bool
) -> Iterator[tuple[str, str]]:
    """Yield the glossary entries for ε, δ and ρ.

    never : True if every outcome of the noise is possible under every record of a user.
    """
    epsilon, delta = guarantee["epsilon"], guarantee["delta"]
    factor = times(epsilon, said)
    yield (
        "ε (epsilon)",
        said["epsilon"].format(
            unit=unit,
            epsilon=up(epsilon),
            factor=factor,
            plus=said["epsilon, plus"] if delta else "",
            zero=said["epsilon, zero"] if delta else "",
        ),
    )
    yield (
        "δ (delta)",
        said["delta" if delta else "delta, pure"].format(
            factor=factor,
            exceeds=up(guarantee["exceeds"]["at_most"], 3) if "exceeds" in guarantee else "",
            none=said["delta, none"] if never else "",
        ),
    )
    if guarantee["rho"] is not None:
        yield "ρ (rho), zCDP", said["rho"]


def glossary(
    doc: Document, release: str = "release.parquet", statement: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield names and explanations of the terms that this page or the statement uses.

    - release : name of the file that contains the release.
    - statement : True if the folder has a statement.
    """
    guarantee, people, ledger, said = doc["guarantee"], doc["population"], doc["ledger"], said_in(doc)

    def term(name: str, **parts: object) -> tuple[str, str]:
        return name, said[f"term.{name}"].format(**parts)

    yield term("Release", release=release)
    if guarantee["epsilon"] is None:
        return
    unit, episodes, never = people["unit"], people["episodes_per_user"], never_certain(doc)
    yield from _symbols(guarantee, unit, said, never)
    if guarantee["mu"] is not None or (ledger is not None and ledger["together"]["mu"] is not None):
        yield "μ (mu), Gaussian DP", said["mu"]
    plural = "s" if episodes > 1 else ""
    yield term("Unit of privacy, neighbours", unit=unit, episodes=episodes, s=plural)
    without = said["term.alarm, table" if statement else "term.alarm, without"]
    yield said["term.alarm"], said["term.alarm, text"].format(without=without)
    if statement:
        yield said["term.belief"], said["term.belief, text"]
    if guarantee["delta"] and statement:
        yield "No bound", said["no bound"].format(none=said["no bound, none"] if never else "")
    yield term("Sensitivity, scale (sigma), standard deviation")
    lines = " ".join(one["description"] for one in doc["mechanisms"])
    if statement and ("sqrt(2 rho)" in lines or "mu = sqrt(" in lines):
        yield term("sqrt(2 rho) = sqrt(k) x s, mu = sqrt(k) x s")
    yield said["term.post"], said["term.post, text"]
    if ledger is not None:
        yield term("Ledger, limit, filter")
    if ledger is not None and ledger["after"].get("limit_key"):
        yield term("Signed limit")
    yield term("Fingerprint, hash")


# --------------------------------------------------------------------------------------- in comparison
def _compared(doc: Document, read: str) -> Iterator[Block]:
    """Yield the section that compares the guarantee with guarantees of published systems.

    read : file that states the guarantee.
    """
    guarantee, people, ledger, said = doc["guarantee"], doc["population"], doc["ledger"], said_in(doc)
    yield Paragraph(said["officer.compared"])
    whole = said["officer.whole"].format(unit=people["unit"])
    mine: list[tuple[str | Link, ...]] = []
    if guarantee["epsilon"] is not None:
        delta = up(guarantee["delta"], 3)
        mine.append(("This release", up(guarantee["epsilon"]), delta, whole, guarantee["trust"], read))
        if doc["alone"] is not None:
            all_ = ledger["together"]
            numbers = _number(all_["epsilon"]), up(all_["delta"], 3)
            mine.append(("All releases in the ledger", *numbers, whole, guarantee["trust"], read))
    others = [
        (one.name, one.epsilon, one.delta, one.unit, one.trust, Link(one.source, one.address))
        for one in PUBLISHED
    ]
    yield Table(
        said["officer.compared, table"],
        ("system", "ε", "δ", "unit of privacy", "trust", "source"),
        (*mine, *others),
    )


# ------------------------------------------------------------------------------------------- the points
def _points(doc: Document, own: Mapping[str, str]) -> Iterator[Block]:
    """Yield the section with NIST's points, the software's answers, and questions for the officer.

    own : answers that replace the default answers, by title of the point.
    """
    found = [(title, own.get(title, answer), asked) for title, answer, asked in _asked(doc)]
    known, asked = (sum(bool(point[i]) for point in found) for i in (1, 2))
    yield Paragraph(
        said_in(doc)["officer.points"].format(number=len(found), known=known, asked=asked),
        source=Link("NIST SP 800-226", NIST),
    )
    for number, (title, answer, question) in enumerate(found, 1):
        yield Heading(3, f"{number}. {title}")
        if answer:
            yield Paragraph(f"The software: {answer}")
        if question:
            yield Paragraph(f"For you: {question}")
            yield Blank(f"Answer {number}")


def _asked(doc: Document) -> Iterator[tuple[str, str, str]]:
    """Yield (title of the point, answer of the software, question to the officer) for each point.

    The answer or the question can be empty.
    """
    said, replanned = said_in(doc), doc["replanned"]
    answer = {key.removeprefix("answer."): text for key, text in said.items()}
    answers = (
        _of_epsilon(doc, answer),
        _of_variant(doc, answer),
        _of_unit(doc, answer),
        answer["comparing"],
        _of_releases(doc, answer),
        _of_mechanisms(doc, answer),
        _of_utility(doc, answer),
        answer["bias, contexts" if of_contexts(doc) else "bias"],
        answer["queries"].format(replanned=answer["queries, replanned"] if replanned else ""),
        _of_trust(doc, answer),
        _of_noise(doc, answer),
        "",
        "",
        _of_published(doc, answer),
    )
    questions = [key.removeprefix("question.") for key in said if key.startswith("question.")]
    for title, answered in zip(questions, answers, strict=True):
        yield title, answered, said[f"question.{title}"].format(unit=doc["population"]["unit"])


Answers = Mapping[str, str]


def _of_variant(doc: Document, said: Answers) -> str:
    guarantee, delta = doc["guarantee"], doc["delta"]
    small, ratio = up(delta["delta"], 3), up(delta["ratio"], 3)
    verdict = said[f"variant, {delta['verdict']}"].format(delta=small, ratio=ratio)
    if guarantee["rho"] is None:
        return verdict
    return verdict + said["variant, rho"].format(rho=up(guarantee["rho"]))


def _of_unit(doc: Document, said: Answers) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return said["unit, none"]
    public = "public" if guarantee["users_public"] else "not published"
    return said["unit"].format(unit=guarantee["unit"], public=public)


def _of_trust(doc: Document, said: Answers) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return said["trust, none"]
    threat = said["threat, seeded" if guarantee["randomness"] == "seeded" else "threat"]
    return said["trust"].format(trust=guarantee["trust"], threat=threat)


def _of_published(doc: Document, said: Answers) -> str:
    leaks = [fact for fact, source in doc["population"]["provenance"].items() if source == "this data"]
    read = said["leaks" if leaks else "no leaks"].format(facts=", ".join(leaks))
    return said["published"].format(read=read)


def _of_epsilon(doc: Document, said: Answers) -> str:
    guarantee, more = doc["guarantee"], ""
    if guarantee["epsilon"] is None:
        return said["epsilon, none"]
    if doc["alone"] is not None:
        together = doc["ledger"]["together"]
        total = _number(together["epsilon"])
        more = said["epsilon, all"].format(epsilon=total, releases=together["reservations"])
    return said["epsilon"].format(epsilon=up(guarantee["epsilon"]), all=more)


def _of_utility(doc: Document, said: Answers) -> str:
    if "verdict" not in doc:  # the statement has an earlier version, in which statements have no verdicts
        return said["utility"]
    if doc["verdict"] is None:
        return said["utility, untested"].format(said=said["utility"])
    what = "model" if SYNTHETIC_INPUT in doc["configuration"]["options"] else "dry run"
    return said["utility, verdict"].format(
        rehearsed=said[f"utility, {what}"] if doc["synthetic"] else "",
        kind=doc["verdict"]["kind"],
        words=verdict_words(doc["verdict"]),
        section=_VERDICT,
    )


def _of_releases(doc: Document, said: Answers) -> str:
    ledger = doc["ledger"]
    if ledger is None:
        return said["releases, none"]
    several = doc["alone"] is not None
    cost = ledger["together"] if several else doc["guarantee"]
    if cost["epsilon"] is None and not several:
        return said["releases, exact"]
    many = said["releases, all" if several else "releases, only"]
    return said["releases"].format(
        many=many.format(releases=ledger["together"]["reservations"]),
        epsilon=_number(cost["epsilon"]),
        delta=up(cost["delta"], 3),
        limit=limit_words(ledger["after"]),
    )


def _of_mechanisms(doc: Document, said: Answers) -> str:
    number = len(doc["mechanisms"]) + ("second_group" in doc)
    if not number:
        return said["mechanisms, none"]
    return said["mechanisms"].format(number=number, s="s" if number > 1 else "")


def _of_noise(doc: Document, said: Answers) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return said["noise, none"]
    if guarantee["randomness"] != "secure":
        return said["noise, seeded"]
    discrete = all("discrete" in one["record"].get("noise", "discrete") for one in doc["mechanisms"])
    return said["noise"].format(drawn=said["noise, discrete" if discrete else "noise, float"])
