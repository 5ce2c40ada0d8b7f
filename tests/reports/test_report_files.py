"""The report in HTML: it says what the Markdown says, opens anywhere, and is one of the folder's files."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium, violations

from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, read_schema
from discreet.learners.offline.apvi import APVI
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.linear_pevi import PEVI
from discreet.learners.ope.hidden_cause import HiddenCause
from discreet.learners.ope.linear_gains import LinearGain
from discreet.learners.ope.mean_outcomes import MeanOutcome
from discreet.learners.ope.verdict import KINDS
from discreet.pipeline import verify as verification
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.learned_files import kind_of
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify
from discreet.reports.decision_report import DecisionReport, StateChange, StateOutcome
from discreet.reports.report_files import ReportPage
from discreet.reports.statement import Statement, file_hash, fingerprint_of, write_statement
from discreet.utils.atomic_file import write_aside
from discreet.utils.document import Picture, Table, html_lines, text_of

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
EARLIER = Path(__file__).parents[1] / "pipeline" / "version_4" / "folder"
SCRIPT = '<script>alert("x")</script> & <img src=x>'
LABELLED = Schema(
    "ward", "patient", Layout(3, 2, 4), terminal=(2,), low=-1.0, high=1.0,
    state_labels=(SCRIPT, f"{SCRIPT} 2", "home"), action_labels=("wait", "<b>drug</b>"),
)  # fmt: skip
LEARNERS = {"tabular": APVI(), "linear": PEVI(), "judged": PEVI(judged=True)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders by the learner's kind, of made-up people with labels that are HTML."""
    here = tmp_path_factory.mktemp("reports")
    write_made_up(LABELLED, 3000, here / "people.parquet", seed=1)
    source = open_source(here / "people.parquet", LABELLED)
    for name, learner in LEARNERS.items():
        learn(source, learner, here / name, ledger=None)
    return here


def decisions(kind: str = "shown", label: str = "severe") -> DecisionReport:
    """A report on decision points of this kind, with every table."""
    schema = read_schema(EARLIER / "schema.toml")
    found: Any = kind_of(schema, DecisionPoints()).again(EARLIER / "release.parquet", LearnConfig()).report
    judged = replace(found.judged, kind=kind, cause=HiddenCause(1.24, 1.09, 1.8))
    nan = float("nan")
    one = MeanOutcome(0, 250.0, 20.0, 0.4, 0.5, 0.25, 0.75, 0.625, 0.375, 0.875, 0.5)
    outcomes = (
        StateOutcome(label, "drug", True, True, one),
        StateOutcome(label, label, True, False, one._replace(expected=nan, apart=nan)),
    )
    change = StateChange(label, 400.0, 20.0, label, 0.6, "drug", 0.4, 0.125, 0.05)
    return replace(found, judged=judged, changes=(change,) * 30, states_changed=30, outcomes=(outcomes,))


def reports(folders: Path) -> Iterator[tuple[str, ReportPage]]:
    for kind in KINDS:
        yield kind, decisions(kind)
    yield "by moves", replace(decisions(), measured="transitions")
    yield "no change", replace(decisions("unchanged"), changes=(), outcomes=(), states_changed=0)
    yield "no test", replace(decisions(), judged=replace(
        decisions().judged, consistency=replace(decisions().judged.consistency, tested=False)
    ))  # fmt: skip
    for name, learner in LEARNERS.items():
        found: Any = (
            kind_of(LABELLED, learner).again(folders / name / "release.parquet", LearnConfig()).report
        )
        yield name, found
    gain = LinearGain(0.1, -0.2, 0.3, 0.95, 0.01, 0.02, 5.0, 0.2, 0.5, 0.1, 200.0)
    yield "unseen", replace(found, gain=gain)


def of_markdown(text: str) -> list[tuple[str, ...]]:
    """Headings, paragraphs, items and rows; marks of the report's Markdown taken off."""
    found: list[tuple[str, ...]] = []
    for line in text.replace("**", "").replace("`", "").splitlines():
        if line.startswith("|---"):
            assert set(line) == set("|-")
        elif line.startswith("| "):
            found.append(("row", *(cell.strip() for cell in line[2:-2].split(" | "))))
        elif heading := re.match("#+ ", line):
            found.append((f"h{heading.end() - 1}", line[heading.end() :]))
        elif line.startswith("* "):
            found.append(("li", line[2:]))
        elif line:
            found.append(("p", line))
    return found


class Read(HTMLParser):
    """The same of a page in HTML, and its tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[list[str]] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag in ("p", "li", "tr") or re.fullmatch("h[1-6]", tag):
            self.found.append(["row"] if tag == "tr" else [tag, ""])
        elif tag in ("td", "th"):
            self.found[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "main" in self.open and data.strip():
            self.found[-1][-1] += data

    @property
    def blocks(self) -> list[tuple[str, ...]]:
        return [(kind, *(part.strip() for part in parts)) for kind, *parts in self.found]


def test_the_html_says_what_the_markdown_says(folders: Path) -> None:
    """Same sentences, numbers and tables, in the same order; it has a title where the Markdown has none."""
    for name, report in reports(folders):
        text = report.to_markdown().replace(SCRIPT, "SCRIPT").replace("<b>drug</b>", "DRUG")
        html = Read(report.to_html())
        shown = [tuple(part.replace(SCRIPT, "SCRIPT").replace("<b>drug</b>", "DRUG") for part in one)
                 for one in html.blocks]  # fmt: skip
        title = [("h1", "Report on the learned policy")]
        assert shown == ([] if "# Report\n" in text else title) + of_markdown(text), name
        assert html.open == []


@pytest.mark.parametrize("name", LEARNERS)
def test_both_files_of_a_folder_say_the_same(folders: Path, name: str) -> None:
    text = (folders / name / "report.md").read_text("utf-8")
    page = Read((folders / name / "report.html").read_text("utf-8"))
    assert page.blocks[-len(of_markdown(text)) :] == of_markdown(text)


def whole(text: str, pictures: int) -> None:
    """It is one document, names its parts, and loads nothing."""
    page = Read(text)
    tags = [tag for tag, _ in page.seen]
    assert not {"script", "link", "iframe", "object", "form", "svg", "a", "b"} & set(tags)
    assert not re.search(r"url\(|@import|javascript:|\son\w+=|https?:|//", re.sub(r'src="[^"]*"', "", text))
    assert ("html", {"lang": "en"}) in page.seen
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in text
    assert "@media print" in text
    assert tags.count("main") == tags.count("title") == tags.count("h1") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {attrs["scope"] for tag, attrs in page.seen if tag == "th"} == {"col", "row"}
    regions = [attrs["aria-label"] for _, attrs in page.seen if attrs.get("role") == "region"]
    assert len(set(regions)) == len(regions) == tags.count("table") > 0
    images = [attrs for tag, attrs in page.seen if tag == "img"]
    assert len(images) == pictures
    assert all(len(one["alt"]) > 30 and one["src"].startswith("data:image/png;base64,") for one in images)
    assert not any(one[0] == "row" and len(one) < 2 for one in page.blocks)


@pytest.mark.parametrize(("name", "pictures"), [("tabular", 2), ("linear", 0), ("judged", 0)])
def test_it_is_whole_accessible_and_alone(folders: Path, name: str, pictures: int) -> None:
    page = (folders / name / "report.html").read_text("utf-8")
    whole(page, pictures)
    assert page.count("data:image/png;base64,") == pictures


def test_the_report_on_decision_points_is_so_too(tmp_path: Path) -> None:
    report = decisions(label=SCRIPT)
    figures = [Path(path) for path in report.figures(tmp_path)]
    page = report.to_html(figures)
    whole(page, 2)
    assert page == report.to_html(figures)
    assert page.count(base64.b64encode((tmp_path / "gain.png").read_bytes()).decode()) == 1
    whole(report.to_html(), 0)  # without files the sentences stand alone


def test_pictures_are_the_folders_own(folders: Path) -> None:
    page = (folders / "tabular" / "report.html").read_text("utf-8")
    found = [base64.b64decode(one) for one in re.findall('base64,([^"]*)"', page)]
    assert found == [(folders / "tabular" / f"{name}.png").read_bytes() for name in ("values", "support")]


def test_bytes_are_fixed_by_the_release(folders: Path, tmp_path: Path) -> None:
    """Planned again from the release, in another folder: the page is copied to the byte, and is verified."""
    replan(folders / "tabular" / "release.parquet", APVI(), tmp_path / "again")
    one, other = ((place / "report.html").read_bytes() for place in (folders / "tabular", tmp_path / "again"))
    assert one == other
    for folder in (tmp_path / "again", *(folders / name for name in LEARNERS)):
        document = json.loads((folder / "statement.json").read_text("utf-8"))
        assert document["files"]["report.html"] == file_hash(folder / "report.html")
        assert [check for check in verify(folder) if not check.ok] == []


def resealed(folder: Path, **changed: Any) -> None:
    """Hashes and fingerprint that fit what lies there."""
    document = json.loads((folder / "statement.json").read_text("utf-8")) | changed
    document["files"] = {name: file_hash(folder / name) for name in document["files"]}
    write_statement(folder, Statement({**document, "fingerprint": fingerprint_of(document)}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("what people did", "what nobody did"),
        ("</main>", "<!-- x --></main>"),
        ('base64,', 'base64,AAAA'),
        ("; img-src data:", "; img-src *"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("drawn", ["by this Matplotlib", "by another one"])
def test_a_changed_page_is_found(folders: Path, tmp_path: Path, old: str, new: str, drawn: str) -> None:
    """Resealed, and where figures are not compared, since another Matplotlib drew them."""
    folder = tmp_path / "out"
    shutil.copytree(folders / "tabular", folder)
    text = (folder / "report.html").read_text("utf-8")
    assert old in text
    write_aside(folder / "report.html", text.replace(old, new, 1).encode())
    versions = json.loads((folder / "statement.json").read_text("utf-8"))["versions"]
    resealed(folder, versions=versions | ({"matplotlib": "0.1"} if drawn == "by another one" else {}))
    wrong = {check.name for check in verify(folder) if not check.ok}
    assert "report.html made again" in wrong
    assert not {name for name in wrong if name.startswith(("report.md", "values"))}


def test_figures_of_another_matplotlib_change_the_page_alone_in_them(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(folders / "tabular", folder)
    page = folder / "report.html"
    before, after = (folders / "tabular" / "values.png").read_bytes(), (folder / "support.png").read_bytes()
    write_aside(folder / "values.png", after)
    text = page.read_text("utf-8")
    text = text.replace(base64.b64encode(before).decode(), base64.b64encode(after).decode())
    write_aside(page, text.encode())
    resealed(folder)
    wrong = {check.name for check in verify(folder) if not check.ok}
    assert wrong == {"values.png made again"}
    monkeypatch.setattr(verification, "versions", lambda: {"matplotlib": "another"})
    assert [check for check in verify(folder) if not check.ok] == []


def test_a_rehearsal_is_one_in_both(folders: Path, tmp_path: Path) -> None:
    for name in ("tabular", "linear"):
        source = open_source(folders / "people.parquet", LABELLED)
        made = learn(
            source, LEARNERS[name], tmp_path / name, ledger=None, settings=LearnConfig(synthetic=True)
        )
        page = Read((made.folder / "report.html").read_text("utf-8"))
        (first,) = (text for kind, text in page.blocks[:2] if kind == "p")
        assert first.startswith("DRY RUN with synthetic users")
        assert of_markdown(made.report)[0] == ("p", first)
        assert [check for check in verify(made.folder) if not check.ok] == []


def test_a_browser_finds_nothing_to_mend(folders: Path) -> None:
    with chromium() as browser:
        for name in LEARNERS:
            page = browser.new_page()
            page.goto((folders / name / "report.html").as_uri())
            assert violations(page) == []


def test_the_row_of_a_gain_that_is_refused_says_so() -> None:
    """It stands far from the verdict, with an interval that may lie above 0."""
    for kind in KINDS:
        row = next(one for one in Read(decisions(kind).to_html()).blocks if one[1].startswith("learned less"))
        assert row[1] == "learned less what people did" + ("" if kind == "shown" else " (not shown)")
    unchanged = replace(decisions("unchanged"), changes=(), states_changed=0)
    assert "| **learned less what people did** (nothing is changed) |" in unchanged.to_markdown()


def test_labels_are_words(folders: Path) -> None:
    page = (folders / "tabular" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &lt;img src=x&gt;" in page
    assert "&lt;b&gt;drug&lt;/b&gt;" in page
    assert SCRIPT in "".join("".join(one) for one in Read(page).blocks)
    assert "<script" not in decisions(label=SCRIPT).to_html()
    table = Table(SCRIPT, (SCRIPT, "b"), ((SCRIPT, SCRIPT),))
    shown = text_of(html_lines(SCRIPT, [table, Picture("a", SCRIPT)], {"a": b"x"}))
    assert "<script" not in shown
    assert "<img src=x" not in shown
    assert 'alt="&lt;script&gt;alert(&quot;x' in shown
