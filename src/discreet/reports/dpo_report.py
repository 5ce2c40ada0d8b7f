"""Page for a data protection officer: the privacy statement in plain words, and questions for the officer.

Like ``statement.md``, the page depends only on ``statement.json``. Therefore ``discreet verify`` can make the
page again and compare it. Readers can fill in only the blank lines of the page. The page lists points that
paraphrase NIST SP 800-226 (March 2025). The software answers each point for which it has a number; the other
points are questions. All numbers are rounded up, as on the page of the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.accounting.text.sentence_templates import version_of, words
from discreet.reports.published_epsilons import PUBLISHED
from discreet.reports.statement_page import hundredths, limit_words, never_certain, times
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

__all__ = ["HTML_NAME", "OFFICER_NAME", "officer_html", "officer_markdown"]

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
    fields : names and texts that describe what was done.
    terms : names and explanations of the terms in the glossary.
    signed : fingerprint, line of the operator, and line of the approver.
    made : file whose numbers the page repeats.
    checked : command that checks the page.
    read : other file that the signer has to read.
    own : answers to NIST's points, by title of the point. They replace the answers about a policy.
    """
    yield Heading(1, title)
    yield Paragraph(
        f"Made from {made}, whose numbers it repeats. It is no certificate: it says what the noise "
        f"promises, and asks what no software can know. Write into the blank lines; '{checked}' finds "
        "any other change."
    )
    yield Heading(2, "In one sentence")
    yield Paragraph(doc["sentence"], strong=True)
    if doc["warnings"]:
        yield Bullets(tuple(doc["warnings"]))
    yield Heading(2, "What was done, for whom, with which data")
    yield NameValueList(tuple(fields))
    yield Heading(2, "The promise in numbers")
    yield from _promise(doc)
    if doc.get("verdict") is not None:
        yield Heading(2, _VERDICT)
        yield Paragraph(verdict_line(doc["verdict"], doc["synthetic"]))
        yield Paragraph(f"{NOT_EXCLUDED}. {not_excluded(doc['verdict']['kind'])}")
    yield Heading(2, "What the words mean")
    yield NameValueList(tuple(terms))
    yield Heading(2, "Beside published deployments")
    yield from _compared(doc, read)
    yield Heading(2, "Points of NIST SP 800-226")
    yield from _points(doc, own or {})
    yield Heading(2, "Signatures")
    yield from _signature_lines(read, *signed)


def _signature_lines(read: str, fingerprint: str, operator: str, approval: str) -> Iterator[Block]:
    """Yield a paragraph with the fingerprint that is signed, and the blank lines for signatures."""
    yield Paragraph(
        f"Who signs has read this page and {read}, whose fingerprint is {fingerprint}. A "
        "signature on paper is written here; one that a computer can check is made by 'discreet sign'."
    )
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
    """Yield the names and texts of declared facts, for example the users, the controller and the purpose.

    declared : declarations of the schema. unnamed : True if no purpose was given for the release.
    """
    people = doc["population"]

    def told(name: str) -> str:
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
    yield "Controller", told("controller")
    yield "Contact", told("contact")
    yield "Purpose of the processing", told("purpose")
    yield "Purpose of this release", _UNSTATED if unnamed else doc["purpose"]
    yield "Legal basis", told("legal_basis")
    yield "Recipients of what is released", told("recipients")
    yield "Retention of the raw data", told("retention")
    yield "Columns of the records that form a person", told("columns")


def _fields(doc: Document) -> Iterator[tuple[str, str]]:
    people, data, guarantee = doc["population"], doc["data"], doc["guarantee"]
    unnamed = doc["purpose"] in ("", f"learn, {doc['configuration']['algorithm']}")  # the default purpose
    yield from declared_fields(doc, data["declared"], unnamed)
    names = data["columns"]
    paid = data["reward"]["source"] == "column"
    read = [name for part, name in names.items() if part != "reward" or paid]
    yield "Columns of the rows that were read", ", ".join(read)
    yield (
        "What one person's record is",
        (
            f"up to {people['episodes_per_user']} episode{'s' if people['episodes_per_user'] > 1 else ''} "
            f"of up to {people['horizon']} steps, each one of {people['states']} states, one of "
            f"{people['actions']} actions and a reward" + _group_of(people)
        ),
    )
    yield "Reward of one step", _reward(data["reward"])
    yield (
        "Return of one episode",
        f"from {data['reward']['return_low']:g} to {data['reward']['return_high']:g}",
    )
    sources = [f"{fact}: {source}" for fact, source in people["provenance"].items()]
    yield "Where public facts come from", "; ".join(sources) or _UNSTATED
    noise = "with noise" if guarantee["epsilon"] is not None else "of exact sums"
    yield "Method", f"{doc['configuration']['algorithm']}, after one release {noise}"
    yield "Trust", _TRUST.get(guarantee["trust"], guarantee["trust"])
    yield "Date", doc["date"]


def _group_of(people: Document) -> str:
    groups = people.get("groups")
    if groups is None:
        return ""
    return f"; and one of {len(groups['labels'])} declared groups ({', '.join(groups['labels'])})"


def _reward(reward: Document) -> str:
    if reward["source"] == "outcomes":
        paid = ", ".join(f"{label} {earned:g}" for label, earned in reward["outcomes"].items())
        left = reward.get("censored")  # statements of earlier versions do not have this key
        more = "" if left is None else f"; the outcome of '{left}' is not known (censored ends)"
        return f"paid by rule on arrival in a last state ({paid}); no column is read{more}"
    ends = f"from {reward['low']:g} to {reward['high']:g}"
    return f"{ends}, public; no column is read" if reward["source"] == "known" else f"{ends}, of a column"


_TRUST = {
    "central": "central: whoever keeps the raw data is trusted; everybody else sees what is released",
}


# ------------------------------------------------------------------------------------------- the promise
def _number(value: float | None) -> str:
    return "none" if value is None else up(value)


def _promise(doc: Document) -> Iterator[Block]:
    """Yield the blocks with the numbers of the guarantee, for this release and all releases in the ledger."""
    guarantee, alone, ledger = doc["guarantee"], doc["alone"], doc["ledger"]
    if guarantee["epsilon"] is None:
        yield Paragraph("There is none: exact sums were released.", strong=True)
        return
    said = _said(doc)
    head = ["what", "this release"]
    own = doc["attacker"] if alone is None else alone
    columns = [(guarantee, own)]
    if alone is not None:
        head.append(f"all {ledger['together']['reservations']} releases that the ledger holds")
        columns.append((ledger["together"], doc["attacker"]))
    rows = [
        ["ε (epsilon)", *(_number(one["epsilon"]) for one, _ in columns)],
        ["δ (delta)", *(up(one["delta"], 3) for one, _ in columns)],
        ["ρ (zCDP)", *(_number(one["rho"]) for one, _ in columns)],
        [_row(said, columns), *(_times(one["epsilon"], said) for one, _ in columns)],
        ["right guesses in 100, at most (a coin: 50)", *(hundredths(_coin(bound)) for _, bound in columns)],
        ["true less false alarms, at most", *(f"{hundredths(bound['advantage'])} %" for _, bound in columns)],
    ]
    if any(one["mu"] is not None for one, _ in columns):
        rows.insert(3, ["μ (Gaussian DP)", *(_number(one["mu"]) for one, _ in columns)])
    yield Table("What can be learned about one person, at most", tuple(head), tuple(map(tuple, rows)))
    if ledger is None:
        yield Paragraph(
            "No ledger was kept: what else was released of these people is not known here.", strong=True
        )
        return
    yield Paragraph(
        f"Written down in the ledger {ledger['name']}, identity {ledger['identity']}, entry "
        f"{ledger['number']}{', new with this release' if ledger['new'] else ''}; the owner's limit for all "
        f"releases together: {limit_words(ledger['after'])}."
    )


def _said(doc: Document) -> Mapping[str, str]:
    """Return the sentence templates that belong to the version of the document."""
    return words(version_of(doc["guarantee"]))


def _row(said: Mapping[str, str], columns: Iterable[tuple[Document, Document]]) -> str:
    """Return the label of the table row with e^epsilon.

    said : sentence templates. columns : for each column, the guarantee or totals, and the attacker's bounds.
    """
    several = any(one["delta"] for one, _ in columns)
    return said["row"].format(plus=said["epsilon, plus"] if several else "")


def _times(epsilon: float | None, said: Mapping[str, str]) -> str:
    return "no bound" if epsilon is None else times(epsilon, said)


def _coin(attacker: Document) -> float:
    """Return the probability that an attacker's best guess between two equally likely records is right."""
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

    release : name of the file that contains the release. statement : True if the folder has a statement.
    """
    guarantee, people, ledger = doc["guarantee"], doc["population"], doc["ledger"]
    unit, episodes = people["unit"], people["episodes_per_user"]
    yield _term("Release", release=release)
    if guarantee["epsilon"] is None:
        return
    said, never = _said(doc), never_certain(doc)
    yield from _symbols(guarantee, unit, said, never)
    if guarantee["mu"] is not None or (ledger is not None and ledger["together"]["mu"] is not None):
        yield "μ (mu), Gaussian DP", said["mu"]
    plural = "s" if episodes > 1 else ""
    yield _term("Unit of privacy, neighbours", unit=unit, episodes=episodes, s=plural)
    without = "Without"
    if statement:
        without = (
            "The table of the statement says how often right, at most, for a given share of false alarms; "
            "without"
        )
    yield _term("False alarm, true alarm", without=without)
    if statement:
        yield _term("Belief before, belief after")
    if guarantee["delta"] and statement:
        yield "No bound", said["no bound"].format(none=said["no bound, none"] if never else "")
    yield _term("Sensitivity, scale (sigma), standard deviation")
    lines = " ".join(one["description"] for one in doc["mechanisms"])
    if statement and ("sqrt(2 rho)" in lines or "mu = sqrt(" in lines):
        yield _term("sqrt(2 rho) = sqrt(k) x s, mu = sqrt(k) x s")
    yield _term("Computed again, planned again")
    if ledger is not None:
        yield _term("Ledger, limit, filter")
    if ledger is not None and ledger["after"].get("limit_key"):
        yield _term("Signed limit")
    yield _term("Fingerprint, hash")


def _term(name: str, **parts: object) -> tuple[str, str]:
    return name, _TERMS[name].format(**parts)


_TERMS = {
    "Release": (
        "what leaves the protected place: sums over all people with random noise on them ({release}). "
        "Everything else in the folder is computed from it."
    ),
    "Unit of privacy, neighbours": (
        "what is hidden: one {unit} with everything in her record, up to {episodes} episode{s}. Two data "
        "sets are neighbours if her record is exchanged for another one; that the number of people is "
        "the same in both means that it is not hidden."
    ),
    "False alarm, true alarm": (
        "an attacker who tests whether a record is that of one person or another is wrong at times (a false "
        "alarm) and right at times (a true alarm). {without} the release both are equal."
    ),
    "Belief before, belief after": (
        "how sure an attacker was of something about one person, and how sure he can be after an alarm. The "
        "row 1 % is of somebody who thought it unlikely: guessing 'no' is then right in 99 % of cases "
        "without any release."
    ),
    "Sensitivity, scale (sigma), standard deviation": (
        "how much one person can change a table of sums (l1: all cells added up, l2: as a length); how wide "
        "the noise on each cell is; and by how much a noisy cell typically differs from the true one."
    ),
    "sqrt(2 rho) = sqrt(k) x s, mu = sqrt(k) x s": (
        "how a mechanism's line comes to its loss: s is what one person can change in all tables together, "
        "in units of their noise; k is in how many noisy sums she is."
    ),
    "Computed again, planned again": (
        "whatever is made from the release without the raw data costs no further privacy (post-processing)."
    ),
    "Ledger, limit, filter": (
        "the owner's book of all releases of the same people; the most that they may cost together; and the "
        "rule that refuses a release which would pass it, however later ones depend on earlier ones."
    ),
    "Signed limit": (
        "the owner's key signed it, and only its holder can change it: who runs a release cannot."
    ),
    "Fingerprint, hash": (
        "64 digits that change if anything in a file changes; who keeps the fingerprint of what was approved "
        "can tell whether it is what lies there."
    ),
}
"""Explanations of the terms in :func:`glossary`, by name of the term."""


# --------------------------------------------------------------------------------------- in comparison
def _compared(doc: Document, read: str) -> Iterator[Block]:
    """Yield the section that compares the guarantee with guarantees of published systems.

    read : file that states the guarantee.
    """
    guarantee, people, ledger = doc["guarantee"], doc["population"], doc["ledger"]
    yield Paragraph(
        "An ε compares with another only if the unit is the same: whose data are hidden, over which time, "
        "and from whom. An ε of one day is spent again every day; one of a whole product is spent once. "
        "That others have published with an ε does not make it a right one for these data."
    )
    whole = f"one {people['unit']}, the whole record"
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
        "ε beside those of published systems, as their makers state them",
        ("system", "ε", "δ", "unit of privacy", "trust", "source"),
        (*mine, *others),
    )


# ------------------------------------------------------------------------------------------- the points
def _points(doc: Document, own: Mapping[str, str]) -> Iterator[Block]:
    """Yield the section with NIST's points, the software's answers, and questions to the officer.

    own : answers that replace the usual answers, by title of the point.
    """
    found = [(title, own.get(title, answer), asked) for title, answer, asked in _asked(doc)]
    known, asked = (sum(bool(point[i]) for point in found) for i in (1, 2))
    yield Paragraph(
        "Guidelines for Evaluating Differential Privacy Guarantees, March 2025, in our words. Of "
        f"{len(found)} points the software answers {known}, with the numbers that it has; {asked} wait for "
        "an answer of yours. Each part of a promise rests on those below it: the last points carry the "
        "first.",
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
    answers = (
        _of_epsilon(doc), _of_variant(doc), _of_unit(doc), "the table above, unit beside ε.",
        _of_releases(doc), _of_mechanisms(doc), _of_utility(doc), _BIAS, _of_queries(doc), _of_trust(doc),
        _of_noise(doc), "", "", _of_published(doc),
    )  # fmt: skip
    unit = doc["population"]["unit"]
    for (title, question), answer in zip(_QUESTIONS.items(), answers, strict=True):
        yield title, answer, question.format(unit=unit)


_QUESTIONS = {
    "The parameter ε": "Is this much acceptable for what these records tell of a person?",
    "The variant, and δ": "",
    "The unit of privacy": (
        "Is one {unit} one person in these records (not several under one name, nor one under several)? Is "
        "it known otherwise who is among them, and does that tell something?"
    ),
    "Comparing guarantees": "",
    "Several releases, and other kinds of release": (
        "Were these people's data released elsewhere, with noise or without, or under another name?"
    ),
    "Algorithms and their correctness": "",
    "Utility": "Is the result worth what it costs, and fit for its purpose?",
    "Bias": "Who could be harmed by a policy that is wrong for a small group, and who looks at that?",
    "The query model": "",
    "Threat model and trust": (
        "Who keeps the raw data, and who of them is trusted on which ground (staff, contract)?"
    ),
    "Side channels, and the mathematics in a computer": (
        "Can people outside see how long a run takes, or its temporary files?"
    ),
    "Security and access to the raw data": (
        "Who can read the raw data, the ledger and the keys? How are they stored, backed up, deleted?"
    ),
    "Exposure at collection": (
        "Are only those data collected that the purpose needs, and were people told? Whatever happens before "
        "the release is not covered by ε."
    ),
    "Facts that are published without noise": (
        "Is anything in the schema, or in the lines declared above, known from these data alone?"
    ),
}
"""Questions to the officer, by title of NIST's point. The text is empty if a point has no question."""

_BIAS = (
    "noise is no smaller where people are few, so that rare states and small groups are known worst; the "
    "report says where support is lacking. It does not know groups that the states do not name."
)


def _of_variant(doc: Document) -> str:
    guarantee, delta = doc["guarantee"], doc["delta"]
    small, ratio = up(delta["delta"], 3), up(delta["ratio"], 3)
    verdict = {
        "pure": "δ = 0: pure differential privacy.",
        "small": f"(ε, δ); δ = {small} is {ratio} times 1/people: at most a tenth, as it should be.",
        "warn": f"(ε, δ); δ = {small} is {ratio} TIMES 1/people: more than a tenth.",
        "none": "no differential privacy.",
    }[delta["verdict"]]
    more = f" ρ = {up(guarantee['rho'])} in zCDP holds too." if guarantee["rho"] is not None else ""
    return verdict + more


def _of_unit(doc: Document) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return "nobody is protected."
    return (
        f"{guarantee['unit']}; exchanged for any other. The number of people is "
        f"{'public' if guarantee['users_public'] else 'not published'}."
    )


def _of_queries(doc: Document) -> str:
    return (
        "one release, asked once; nothing is answered later. "
        f"{'It read no data: ' if doc['replanned'] else ''}Planning again costs nothing."
    )


def _of_trust(doc: Document) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return "none is met."
    return (
        f"trust is {guarantee['trust']}; against anybody who sees all that is released, "
        f"{_said(doc)['threat, seeded' if guarantee['randomness'] == 'seeded' else 'threat']}."
    )


def _of_published(doc: Document) -> str:
    leaks = _leaks(doc["population"]["provenance"])
    read = (
        f"READ OFF THESE DATA: {', '.join(leaks)}; "
        if leaks
        else "none was declared as read off these data; "
    )
    return f"{read}what is published exactly: the schema, and the number of people."


def _leaks(provenance: Mapping[str, str]) -> list[str]:
    return [fact for fact, source in provenance.items() if source == "this data"]


def _of_epsilon(doc: Document) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return "none; exact sums were released."
    said = f"ε = {up(guarantee['epsilon'])} by this release"
    if doc["alone"] is not None:
        together = doc["ledger"]["together"]
        said += f"; {_number(together['epsilon'])} by all {together['reservations']} that the ledger holds"
    return f"{said}. Computed from the noise, not typed in."


def _of_utility(doc: Document) -> str:
    said = (
        "the first line of report.md says whether the policy is shown to be better than what people did, "
        "or that this release cannot tell."
    )
    if "verdict" not in doc:  # the statement has an earlier version, in which statements have no verdicts
        return said
    if doc["verdict"] is None:
        return (
            f"{said} It supposes that no unrecorded cause drives both action and outcome: of this algorithm "
            "that is not tested."
        )
    kind = doc["verdict"]["kind"]
    rehearsed = "a rehearsal, nothing is shown of anybody; " if doc["synthetic"] else ""
    return (
        f"{rehearsed}the kind of verdict is '{kind}': {verdict_words(doc['verdict'])}. What it rests on, and "
        f"what it cannot exclude, stands above under '{_VERDICT}'."
    )


def _of_releases(doc: Document) -> str:
    ledger = doc["ledger"]
    if ledger is None:
        return "NO LEDGER was kept: nothing is known of other releases."
    several = doc["alone"] is not None
    cost = ledger["together"] if several else doc["guarantee"]
    if cost["epsilon"] is None and not several:
        return "exact sums were released, beside which nothing counts."
    many = "this release is the only one of these people that the ledger holds"
    if several:
        many = f"{ledger['together']['reservations']} releases of these people in the ledger, together"
    return (
        f"{many}: ε = {_number(cost['epsilon'])} at δ = {up(cost['delta'], 3)}; "
        f"{limit_words(ledger['after'])}. Other ledgers and other names are not seen from here."
    )


def _of_mechanisms(doc: Document) -> str:
    many = len(doc["mechanisms"])
    if not many:
        return "no noise was added."
    return (
        f"{many} mechanism{'s' if many > 1 else ''}, listed in statement.md with sensitivity, scale and "
        "where the proof stands; 'discreet verify' computes sensitivities and ε again, ε by a second route "
        "too."
    )


def _of_noise(doc: Document) -> str:
    guarantee = doc["guarantee"]
    if guarantee["epsilon"] is None:
        return "there is no noise."
    if guarantee["randomness"] != "secure":
        return "THE NOISE COMES FROM A SEED: for simulation only, it protects nobody from who knows the seed."
    discrete = all("discrete" in one["record"].get("noise", "discrete") for one in doc["mechanisms"])
    drawn = (
        "noise is drawn exactly, in whole numbers, from the system's cryptographic source, so that attacks "
        "on rounding of floating-point numbers find nothing"
        if discrete
        else "noise comes from the system's cryptographic source"
    )
    return f"{drawn}. Time, memory and temporary files are not covered."
