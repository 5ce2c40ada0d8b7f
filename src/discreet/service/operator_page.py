"""Web page for the operator. It shows the public state of a study to readers without technical knowledge.

The server sends a complete HTML page. A small script, allowed by its hash in the content security policy,
requests the page again and replaces only changed parts. Therefore keyboard focus and scroll position do not
change. A button stops the script. The page shows no content of messages and no tickets.

The page ``/`` shows only public facts. The only times that it shows are the times of releases. With the rule
"clock", nothing on it depends on answers. The page ``/operator`` has one more section, for the operator
alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np

from discreet.accounting.text.guarantee_sentences import up
from discreet.service.activity import Activity
from discreet.service.database import Store
from discreet.service.encoding import policy_of
from discreet.service.study_config import Study
from discreet.utils.document import Block, Heading, Paragraph, Table, html_body, text_of

__all__ = ["POLICY", "operation_section", "page", "trouble_page"]

_SHOWN = 12  # largest number of releases that the page shows, newest first
_STYLE = """
:root { color-scheme: light dark; background: Canvas; color: CanvasText; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; } caption { text-align: left; padding: .3rem 0; }
th, td { overflow-wrap: normal; border: 1px solid #8888; padding: .2rem .6rem; text-align: right; }
th[scope=row] { text-align: left; }
.table { overflow-x: auto; } progress { width: 100%; height: 1.2rem; }
.bad { border: 2px solid #c00; padding: .5rem; }
:focus-visible { outline: 3px solid Highlight; outline-offset: 2px; }
button { font: inherit; padding: .4rem .8rem; }
"""
# The script updates the page every 10 seconds unless the operator stops it. It does not replace unchanged
# sections.
_SCRIPT = """
"use strict";
const button = document.getElementById("live"), note = document.getElementById("asked");
let live = true;
button.hidden = false;
button.addEventListener("click", () => {
  live = !live;
  button.textContent = live ? "Stop updates" : "Update again";
  if (live) update();
});
async function update() {
  let fresh;
  try {
    const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(9000) });
    if (!answer.ok) throw new Error();
    fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    note.textContent = "The service does not answer: what is shown may be old.";
    return;
  }
  note.textContent = "";
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.innerHTML === part.innerHTML) continue;
    const name = (one) => one.getAttribute("aria-label");
    const held = part.contains(document.activeElement) ? name(document.activeElement) : null;
    const at = new Map([...part.querySelectorAll(".table")].map((one) => [name(one), one.scrollLeft]));
    part.replaceChildren(...other.childNodes);
    for (const one of part.querySelectorAll(".table")) {
      one.scrollLeft = at.get(name(one)) ?? 0;
      if (name(one) === held) one.focus({ preventScroll: true });
    }
  }
}
setInterval(() => live && !document.hidden && update(), 10000);
"""
_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _html(blocks: Iterable[Block]) -> str:
    return text_of([*html_body([*blocks])])


def _number(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _count(people: int) -> str:
    return "one person" if people == 1 else f"{people:,} people"


def _shuffled(store: Store, turn: int, users: int, over: bool) -> Iterator[Block]:
    """Yield sentences about a batch at a shuffler: whether its sum has arrived, and how many users answered
    in the last batch.
    """
    waiting = (
        f"The next release waits for a batch of {_count(users)}. The shuffler keeps their messages, and "
        "reveals nothing about them until everyone in the batch has answered or is absent. This service does "
        "not know how many have answered."
        if store.sum_of(turn) is None
        else f"The shuffler has sent the sum of the batch of {_count(users)}. The next release is being made."
    )
    if not over:
        yield Paragraph(waiting)
    last = store.sum_of(turn if over else turn - 1)
    if last is not None:
        content = json.loads(last)["content"]
        came, absent = int(content["users"]), int(content["absent"])
        line = f"The last complete batch had {_count(came + absent)}; {came:,} answered in time"
        if content["counts"] is None:
            line += ": too few for the guarantee, so nothing was released about this batch"
        yield Paragraph(f"{line}.")


def _releases(store: Store, turn: int, several: bool) -> Table:
    rows, names = [], list[str]()
    for number in range(turn, max(-1, turn - _SHOWN), -1):
        found = store.release(number)
        if found is None:
            continue
        release = json.loads(found[0])
        sums: Mapping[str, Any] = release["sums"]
        names = names or list(sums)
        noise = [f"{sums[name]['noise_std']:.3g}" if name in sums else "" for name in names]
        rows.append((str(number), f"{release['users']:,}", release["time"].replace("+00:00", " UTC"), *noise))
    head = (
        "release",
        "participations" if several else "people in it",
        "made",
        *(f"noise in {name.replace('_', ' ')}" for name in names),
    )
    caption = "The newest releases, with the standard deviation of the noise in one number"
    return Table(caption, head, tuple(rows))


def _policy(plans: Sequence[Mapping[str, Any]], study: Study, over: bool) -> Iterator[Block]:
    """Yield a table of the most likely action at each step and state, for the plan with the most users.

    If the study is over, the plan is one of the last plans.
    """
    if not plans:
        yield Paragraph("No plan is open.")
        return
    chosen = max(plans, key=lambda one: int(one["users"]))
    policy = policy_of(json.loads(chosen["policy"]))
    if study.features is not None:
        yield from _coefficients(policy, chosen, over)
        return
    acts = policy if policy.ndim == 2 else np.asarray(policy.argmax(axis=2))
    states = range(min(study.layout.states, 30))
    rows = ((str(h + 1), *(str(int(acts[h, s])) for s in states)) for h in range(study.layout.horizon))
    head = ("step", *(f"state {s}" for s in states))
    what = "action" if policy.ndim == 2 else "likeliest action"
    others = ""
    if len(plans) > 1 and not over:
        others = f" {_number(len(plans) - 1, 'other plan is', 'other plans are')} open at the same time."
    follow = "the last plan" if over else "the plan that most people follow now"
    yield Paragraph(f"The {what} in each state, at each step, of {follow}.{others}")
    caption = f"Plan {chosen['number']}, for {_count(int(chosen['users']))}"
    yield Table(caption, head, tuple(rows), label="The plan")


def _coefficients(policy: Any, chosen: Mapping[str, Any], over: bool) -> Iterator[Block]:
    """Yield a table of feature coefficients, at most 30 for each block.

    Only learners with contexts have such coefficients.
    """
    follow = "the last plan" if over else "the plan that most people follow now"
    yield Paragraph(
        f"The coefficients of the features in {follow}. A device takes the action with the highest score. "
        "Some people act at random, or with coefficients of their own."
    )
    rows = ((str(i), *(f"{x:.3g}" for x in block[:30])) for i, block in enumerate(policy.tolist()))
    head = ("block", *(f"feature {i + 1}" for i in range(min(policy.shape[1], 30))))
    caption = f"Plan {chosen['number']}, for {_count(int(chosen['users']))}"
    yield Table(caption, head, tuple(rows), label="The plan")


def _minute(at: float) -> str:
    """Return a time as text, rounded up to a full minute."""
    return datetime.fromtimestamp(60 * math.ceil(at / 60), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _working(study: Study, store: Store, plans: Sequence[Mapping[str, Any]]) -> str:
    """Return a string that states whether users can take part now.

    If they cannot, the string also states the reason, and the latest time at which the wait ends.
    """
    if study.shuffler is not None:
        return f"Working. People take part at the shuffler, {study.shuffler['url']}."
    if store.standing().paused:
        return "The operator has paused the study. No place is given; answers are accepted."
    rule = store.batches
    if rule is not None and rule.held_turns is not None:
        turn = int(plans[-1]["turn"])
        free = "People can take part" if store.vacancies() else "No place is free until the next plan"
        return f"Working. {free}. The next release is made at {_minute(rule.closes(turn))}."
    if store.vacancies():
        said = "Working. People can take part."
        if study.closes_after is not None:
            last = max(float(one["opened"]) for one in plans) + study.closes_after
            said += f" Places that are not taken by {_minute(last)} count as absent."
        return said
    count, last = store.waiting()
    if not count:
        return (
            "Working. Everyone in the open batch has answered or is absent. The next release is being made."
        )
    if store.batches is not None:
        if store.given() >= study.users:
            return (
                f"Waiting. All places of the study are taken. {_count(count)} took a place and "
                f"{'has' if count == 1 else 'have'} not answered. The study ends at {_minute(last)} at the "
                "latest."
            )
        return (
            f"Waiting. Too many reservations are open: {_count(count)} took a place and "
            f"{'has' if count == 1 else 'have'} not answered. A place is free again when one of them answers "
            f"or is absent, at {_minute(last)} at the latest. Until then, people can follow the published "
            "plan."
        )
    return (
        f"Waiting. All places are taken. The next release waits for {_count(count)} who took a place and "
        f"{'has' if count == 1 else 'have'} not answered. People who do not answer in time count as "
        f"absent. The next plan opens at {_minute(last)} at the latest."
    )


def _people(study: Study, store: Store, plans: Sequence[Mapping[str, Any]], turn: int, over: bool) -> str:
    """Return a section with two numbers of users: who took part, and whose answers are awaited."""
    newest = store.release(turn)
    before = int(json.loads(newest[0])["users"]) if newest else 0
    came, absent, placed, users = (
        sum(int(one[name]) for one in plans) for name in ("came", "absent", "placed", "users")
    )
    reserved = placed
    rule = store.batches
    if rule is not None and rule.held_turns is not None:  # nothing that depends on answers
        now = [one for one in plans if one["turn"] == turn]
        offered, placed = (sum(int(one[name]) for one in now) for name in ("users", "placed"))
        rows = (("places of the current plan", f"{offered:,}"), ("taken", f"{placed:,}"))
        table = Table("Places until the next release", ("what", "places"), rows)
        done = study.users if over else before
        part = f"{done:,} of {_number(study.users, 'place', 'places')} of the study were offered so far."
        return _html([Heading(2, "People"), Paragraph(part), *([] if over else [table])])
    if store.batches is not None and not over:
        parts = store.batch(turn)
        came, absent, users = (
            *(sum(int(one[name]) for one in parts) for name in ("came", "absent")), store.batches.size(turn),
        )  # fmt: skip
        reserved = store.waiting()[0]
    done = study.users if over else min(study.users, before + came + absent)
    whole = ", in complete batches" if study.shuffled else ""
    mixed = store.batches is not None
    counts = (
        ("people of the open batch" if mixed else "places of the open plans", f"{users:,}"),
        ("places taken, not answered yet" if mixed else "taken", f"{reserved:,}"),
        ("answered", f"{came:,}"),
        ("absent (no answer in time)", f"{absent:,}"),
    )
    table = Table("People for whom the next release waits", ("who", "people"), counts)
    # under shuffle trust this service receives only sums of complete batches
    waits = _shuffled(store, turn, users, over) if study.shuffled else [] if over else [table]
    part = f"{done:,} of {_number(study.users, 'person has', 'people have')} taken part{whole}."
    if study.participations > 1:  # one person can count several times
        part = f"{done:,} of {study.users:,} participations were counted so far."
    return (
        f"{_html([Heading(2, 'People'), Paragraph(part)])}<progress "
        f'aria-label="people who have taken part" max="{study.users}" value="{done}"></progress>'
        f"{_html(waits)}"
    )


def _budget(statement: Mapping[str, Any]) -> Iterator[Block]:
    """Yield a table of the study's privacy budget, and a sentence about the budget's reservation in the
    ledger.
    """
    guarantee, ledger = statement["guarantee"], statement["ledger"]
    names = (name for name in ("epsilon", "delta", "rho", "mu") if guarantee.get(name) is not None)
    budget = tuple((name, up(guarantee[name], 6)) for name in names)
    yield Table("The budget of the whole study", ("number", "value"), budget)
    yield Paragraph(
        f"Reserved in the ledger of {ledger['dataset']}: entry {ledger['number']}."
        if isinstance(ledger, Mapping)
        else str(ledger)
    )


def _list(caption: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]], none: str) -> Block:
    """Return a table, or a sentence if the table has no rows."""
    found = tuple(rows)
    return Table(caption, head, found) if found else Paragraph(none)


def operation_section(store: Store, activity: Activity, now: float) -> str:
    """Return the section that only the operator sees.

    It has no tickets, but row numbers of the database.
    """
    about = store.about()
    batch, standing = store.open_batch(int(about["turn"]), now), store.standing()
    hours = [
        (hour, f"{done:,}", f"{guests:,}", said or "none") for hour, done, guests, said in activity.rows()
    ]
    counts = (
        ("age of the newest plans", f"{batch.age:,.0f} s"),
        ("answered or absent", f"{batch.resolved:,} of {batch.size:,}"),
        ("places without an answer", f"{batch.in_flight:,}"),
    )
    state = "Paused: no new places are given." if standing.paused else "Not paused."
    acts = (
        (one["kind"], f"{one['seconds']:,g}" if one["seconds"] else "", str(one["at_turn"]))
        for one in store.acts()
    )
    dues = ((str(number), _minute(due)) for number, due in batch.due)
    programs = (
        (str(one["at_turn"]), one["version"], f"{one['learner']} {one['learner_version']}", one["python"])
        for one in store.programs()
    )
    names = ((name,) for name in store.tokens())
    blocks: list[Block] = [
        Heading(2, "Operation"),
        Paragraph(state),
        Paragraph(f"The last error of this process: {activity.error or 'none'}."),
        Table("The open batch", ("what", "number"), counts),
        _list("The next places that end", ("row", "time"), dues, "No place is open."),
        _list(
            "Requests to this process by the hour", ("hour", "done", "no place (guests)", "refused"), hours,
            "No request since this process was started.",
        ),
        _list("Commands", ("command", "seconds", "release"), acts, "No command was given."),
        _list("Versions", ("since release", "library", "learner", "Python"), programs, "None is known."),
        _list("Tokens", ("name",), names, "There is no token."),
    ]  # fmt: skip
    return _html(blocks)


def page(study: Study, store: Store, statement: Mapping[str, Any], failed: str, operation: str = "") -> str:
    """Return the whole page as HTML.

    - failed : reason why no release can be made; empty if there is none.
    - operation : result of :func:`operation_section`, only for the operator.
    """
    about, plans = store.about(), store.plans()
    turn, over = int(about["turn"]), bool(about["over"])
    state = (
        f'<p class="bad" role="alert">No release can be made: {escape(failed)}</p>'
        if failed
        else _html([Paragraph("The study is over." if over else _working(study, store, plans))])
    )
    rehearsal = (
        "<p class='bad'>This is a dry run: its noise protects no one.</p>" if statement["rehearsal"] else ""
    )
    name = escape(study.name)
    doing = Heading(2, f"What the policy {'did last' if over else 'does now'}")
    live = {
        "state": state + rehearsal,
        "operation": operation,
        "people": _people(study, store, plans, turn, over),
        "policy": _html([doing, *_policy(store.policies(turn), study, over)]),
        "releases": _html([Heading(2, "Releases"), _releases(store, turn, study.participations > 1)]),
    }
    promised: list[Block] = [
        Heading(2, "What is promised"), Paragraph(statement["first"]), *_budget(statement),
        Heading(2, "Who sees what"), *map(Paragraph, statement["who_sees_what"]),
        Heading(2, "Withdrawal"), Paragraph(statement["withdrawal"]),
    ]  # fmt: skip
    hidden: list[Block] = [Heading(2, "What no noise hides"), *map(Paragraph, statement["side_channels"])]
    parts = {
        name: f'<section id="{name}" data-live{spoken}>{content}</section>'
        for (name, content), spoken in zip(live.items(), (' role="status"', "", "", "", ""), strict=True)
    }
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}: study</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><header><h1>{name}</h1>"
        '<button id="live" type="button" hidden>Stop updates</button>'
        '<p id="asked" role="status"></p></header><main>'
        f"{parts['state']}{parts['operation'] if operation else ''}{parts['people']}"
        f"{_html(promised)}{parts['policy']}{parts['releases']}"
        f"{_html(hidden)}</main><footer>"
        f"<p>Signed with the key <code>{escape(statement['key'])}</code>. "
        '<a href="statement">The statement</a>, <a href="plan">the plan</a>, '
        f'<a href="openapi.json">the interface</a>.</p></footer><script>{_SCRIPT}</script></body></html>'
    )


def trouble_page(study: Study, cause: str) -> str:
    """Return the page that is shown while the database does not answer."""
    name = escape(study.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}: study</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><header><h1>{name}</h1></header><main>"
        f'<p class="bad" role="alert">The database does not answer: {escape(cause)}. Nobody can take part, '
        "and no message is accepted. Messages that were accepted before are stored in the "
        "database. Load this page again to see whether the database answers.</p></main>"
        "</body></html>"
    )
