"""Commands of the policy service: ``serve`` and ``shuffler``."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.common import (
    JsonFlag,
    PluginOption,
    announce_compilation,
    command,
    console,
    new_table,
    print_json,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from discreet.service.database import Store
    from discreet.service.dry_run import DryRun
    from discreet.service.study_config import Study

TicketsOption = Annotated[
    int | None, typer.Option(help="Print this number of new one-time tickets, and exit.")
]
PersonsOption = Annotated[
    Path | None,
    typer.Option(help="Print a new ticket for each pseudonym in this file (one a line), and exit."),
]
NewHeadOption = Annotated[
    bool,
    typer.Option("--new-head", help="Replace a lost head by a new one: no later database exists. Then exit."),
]
MigrateOption = Annotated[
    bool,
    typer.Option("--migrate", help="Change the tables of an earlier version's database to this one's. Exit."),
]


CheckOption = Annotated[bool, typer.Option("--check", help="Check the study, print its statement, and exit.")]
DryRunOption = Annotated[
    int | None,
    typer.Option("--dry-run", help="Run the service with this number of simulated users, then exit."),
]
StayOption = Annotated[
    int,
    typer.Option(help="With --dry-run: number of seconds for which the operator's page stays available."),
]
OperatorOption = Annotated[
    bool, typer.Option("--operator", help="Print a new operator's token for POST /tickets, and exit.")
]
StudiesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="STUDY...", help="The study file (TOML; docs/service.md). Several: /NAME each."),
]
WithdrawOption = Annotated[
    str | None, typer.Option("--withdraw", help="Withdraw the user with this ticket, and exit.")
]
RotateOption = Annotated[
    bool, typer.Option("--rotate-key", help="Replace the service's key by a new one, and exit.")
]
RecoveryOption = Annotated[
    Path | None,
    typer.Option(help="With --rotate-key: file of the recovery key, if the service's key is lost."),
]
AcceptOption = Annotated[
    bool,
    typer.Option("--accept-learner", help="Go on with a learner that makes other plans than before."),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="DISCREET_DATABASE",
        help="File of SQLite, or SQLAlchemy's URL. Default: study.sqlite or shuffler.sqlite.",
    ),
]
HostOption = Annotated[str, typer.Option(help="Address on which to listen.")]
PortOption = Annotated[int, typer.Option(help="Port on which to listen.")]
ShufflerKeyOption = Annotated[
    bool, typer.Option("--key", help="Print this shuffler's public key (made if there is none), and end.")
]
ServiceKeyOption = Annotated[
    str | None, typer.Option(help="The service's public key: 64 hexadecimal digits, from its operator.")
]


@command
def serve(
    studies: StudiesArgument,
    database: DatabaseOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    check: CheckOption = False,
    dry_run: DryRunOption = None,
    stay: StayOption = 0,
    tickets: TicketsOption = None,
    persons: PersonsOption = None,
    operator: OperatorOption = False,
    withdraw: WithdrawOption = None,
    new_head: NewHeadOption = False,
    migrate: MigrateOption = False,
    rotate_key: RotateOption = False,
    recovery_key: RecoveryOption = None,
    accept_learner: AcceptOption = False,
    as_json: JsonFlag = False,
    plugin: PluginOption = None,
) -> None:
    """Serve a study: devices fetch plans and send messages, and a learner sees only releases."""
    from discreet.service.dependencies import check_installed

    check_installed()
    if recovery_key is not None and not rotate_key:
        raise ValueError("--recovery-key: must be given with --rotate-key")
    _at_most_one(
        check=check, dry_run=dry_run, tickets=tickets, persons=persons, operator=operator, new_head=new_head,
        migrate=migrate, rotate_key=rotate_key, withdraw=withdraw,
    )  # fmt: skip
    if stay < 0 or (stay and dry_run is None):
        raise ValueError(f"--stay = {stay}: must be a number of seconds, with --dry-run")
    announce_compilation()
    from discreet.service import server as running
    from discreet.service.study_config import read_study

    if len(studies) > 1:
        own = any(
            (database, check, dry_run, tickets, persons, operator, new_head, migrate, rotate_key, withdraw)
        )
        _serve_all(studies, host, port, accept_learner, tuple(plugin or ()), alone=own)
        return
    found = read_study(studies[0], tuple(plugin or ()))
    where = running.database_of(found, database)
    if check:
        _print_statement(found, as_json)
    elif dry_run is not None:
        _run_dry(found, dry_run, stay, as_json)
    elif new_head or migrate:
        (_begin_head if new_head else _migrate)(found, where)
    elif withdraw is not None:
        _withdraw(found, where, withdraw, as_json)
    elif rotate_key:
        _rotate(found, where, recovery_key)
    elif tickets is not None or operator or persons is not None:
        _issue_of_service(found, where, tickets, as_json, persons)
    else:
        shown = running.without_password(where)
        running.serve(
            found, where, host, port, lambda url: say(f"discreet: {found.name} at {url}, database {shown}"),
            accept_learner=accept_learner,
        )  # fmt: skip


@command
def shuffler(
    study: Annotated[
        Path, typer.Argument(help="The study file, the same as the service's (docs/service.md).")
    ],
    service: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    service_key: ServiceKeyOption = None,
    database: DatabaseOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8081,
    key: ShufflerKeyOption = False,
    tickets: TicketsOption = None,
    operator: OperatorOption = False,
    new_head: NewHeadOption = False,
    migrate: MigrateOption = False,
    as_json: JsonFlag = False,
    plugin: PluginOption = None,
) -> None:
    """Run the shuffler of a study: receive messages of devices, and send only sums of whole batches."""
    from discreet.service.dependencies import check_installed

    check_installed()
    _at_most_one(key=key, tickets=tickets, operator=operator, new_head=new_head, migrate=migrate)
    from discreet.service import server as running

    file = study.parent / "shuffler.key"
    if key:  # this is possible before the study file is complete, because the study file must contain this
        # key
        own = running.shuffler_key_at(file)
        if as_json:
            print_json({"key": own.public})
        else:
            print(own.public)
        return
    announce_compilation()
    from discreet.service.study_config import read_study

    found = read_study(study, tuple(plugin or ()))
    where = database or str(found.path("shuffler.sqlite"))
    if new_head or migrate:
        (_begin_head if new_head else _migrate)(found, where)
        return
    if tickets is not None or operator:
        _issue(running.opened_shuffler(found, where), tickets, as_json)
        return
    if service is None or service_key is None:
        raise ValueError("--service, --service-key: must be given: the service of this shuffler")
    shown = running.without_password(where)
    running.serve_shuffler(
        found, where, running.shuffler_key_at(file, make=False), service, service_key, host, port,
        lambda url: say(f"discreet: shuffler of {found.name} at {url}, database {shown}"),
    )  # fmt: skip


def _serve_all(
    files: list[Path], host: str, port: int, accept_learner: bool, plugins: tuple[str, ...], *, alone: bool
) -> None:
    """Serve several studies. Key and database of each study are in the folder of its file.

    alone : True if an option was given that is for one study.
    """
    if alone:
        raise ValueError(
            "study files: must be one study file with options other than --host, --port, --plugin and "
            "--accept-learner"
        )
    from discreet.service import server as running
    from discreet.service.embedding import slugs
    from discreet.service.study_config import read_study

    studies = {}
    for name, file in zip(slugs(files), files, strict=True):
        found = read_study(file, plugins)
        studies[name] = found, running.database_of(found, None)
    names = ", ".join(f"/{name}" for name in studies)
    running.serve_all(
        studies, host, port, lambda url: say(f"discreet: {names} at {url}"), accept_learner=accept_learner
    )


def _at_most_one(**given: object) -> None:
    """Raise ``ValueError`` if more than one of these options has a value other than None and False."""
    if sum(one is not None and one is not False for one in given.values()) > 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{names}: give one of them")


def _print_statement(study: Study, as_json: bool) -> None:
    """Print the statement for participants of a study."""
    from discreet.service.participant_statement import make_participant_statement
    from discreet.service.returning_users import least_persons

    content = make_participant_statement(study, None if study.ledger is None else dict(study.ledger), "")
    if as_json:
        print_json(content)
        return
    again = [content["participation"]["meaning"], ""] if "participation" in content else []
    facts = (*content["who_sees_what"], "", *again, *content["side_channels"], "", content["withdrawal"])
    for line in (study.name, "", content["first"], "", *facts):
        console().print(line, soft_wrap=True)
    many = f"{study.releases:,} release{'s' if study.releases != 1 else ''}"
    what = "users" if study.every is None else f"places, one every {study.every:,g} seconds"
    console().print(f"\n{many}, after {_times(content['releases'])} {what}")
    if again:
        sizes = [b - a for a, b in pairwise([*content["releases"], study.users])]
        console().print(f"at least {least_persons(sizes, study.participation):,} persons are needed")
    console().print(f"identity {study.identity}", soft_wrap=True)


def _run_dry(study: Study, users: int, stay: int, as_json: bool) -> None:
    """Run the dry run of a study and print its results. The operator's page stays available for ``stay`` more
    seconds.
    """
    from discreet.service.dry_run import run_dry

    simulated = study.for_dry_run(users)

    def ended(result: DryRun) -> None:
        """Print the results, then wait while the operator's page is still served."""
        bar.close()
        rows = {
            "people": result.users, "releases": result.releases, "seconds": round(result.seconds, 1),
            "value of the last quarter's policies": result.late, "of the best policy": result.optimal,
            "of the uniform policy": result.uniform,
        }  # fmt: skip
        if as_json:
            print_json(rows)
        else:
            table = new_table("dry run with seeded noise", "", right=("",))
            for name, value in rows.items():
                table.add_row(
                    name.replace("people", "users"),
                    f"{value:,}" if isinstance(value, int) else f"{value:.4g}",
                )
            console().print(table)
            few = f"; the study has {study.users:,} users" if users < study.users else ""
            console().print(f"A policy's value is its mean reward sum per user{few}.")
        if stay:
            say(f"discreet: the page stays for {stay} seconds; Ctrl-C ends it")
            with suppress(KeyboardInterrupt):
                time.sleep(stay)

    until = "until the dry run ends" if not stay else f"and for {stay} seconds after the dry run"
    with ExitStack() as bar:
        shown = bar.enter_context(progress_bar("dry run", simulated.users))
        run_dry(
            simulated,
            lambda users: shown(0, users),
            opened=lambda url: say(f"discreet: the operator's page is {url}/ {until}"),
            ended=ended,
        )


def _begin_head(study: Study, database: str) -> None:
    """Begin a new head, and print what was done."""
    from discreet.service import server as running

    path, kept = running.begin_new_head(study, database)
    old = "there was none before" if kept is None else f"the old one is {str(kept)!r} now"
    say(f"discreet: the head {str(path)!r} begins with the newest release of the database; {old}")


def _rotate(study: Study, database: str, recovery_key: Path | None) -> None:
    """Replace the service's key, and print the new public key."""
    from discreet.service import server as running

    public = running.rotate(study, database, recovery_key)
    say(f"discreet: the public key is {public} now; clients with an earlier one follow GET /keys")


def _migrate(study: Study, database: str) -> None:
    """Migrate a database, and print what was done."""
    from discreet.service import server as running
    from discreet.service.database import SCHEMA

    before, copy = running.migrate(study, database)
    if before == SCHEMA:
        say(f"discreet: the database has tables of version {SCHEMA}, nothing to do")
        return
    say(f"discreet: the tables have version {SCHEMA} now (before: {before})")
    if copy is not None:
        say(f"discreet: {copy} is the database before; it can hold messages: delete it when all is well")


def _issue_of_service(
    study: Study, database: str, tickets: int | None, as_json: bool, persons: Path | None
) -> None:
    """Create and print tickets, or an operator's token, of a service."""
    from discreet.service import server as running

    if study.shuffled:
        raise ValueError("--tickets, --persons, --operator: are of `discreet shuffler`, under shuffle trust")
    _issue(running.opened(study, database), tickets, as_json, persons)


def _withdraw(study: Study, database: str, ticket: str, as_json: bool) -> None:
    """Withdraw the user with a ticket, and print the result. Raises ``ValueError`` if it is too late."""
    from discreet.service import server as running
    from discreet.service.database import WithdrawalRequest, hashed
    from discreet.service.system_io import SYSTEM

    if study.shuffled:
        raise ValueError("--withdraw: users of a shuffler withdraw there (POST /withdrawals)")
    store = running.opened(study, database)
    try:
        now = store.clocked(SYSTEM).now()
        request = WithdrawalRequest(hashed(ticket))
        (result,) = store.admit([request], now, study.answer_within, study.closes_after)
    finally:
        store.close()
    words = {
        "foreign": "must be a ticket of this study",
        "placeless": "must have a place; nothing was sent with this ticket",
        "counted": "must be of the open batch; the message is counted, and a sum cannot be changed",
        "over": "must be of the open batch; the study is over",
    }
    if result.status != "withdrawn":
        raise ValueError(f"--withdraw: {words.get(result.status, result.status)}")
    if as_json:
        print_json({"status": result.status})
    else:
        say("discreet: withdrawn; no sum contains a message of this ticket, and none will")


def _issue(store: Store, tickets: int | None, as_json: bool, persons: Path | None = None) -> None:
    """Create and print tickets (a number of them, or one for each pseudonym) or an operator's token.

    The store is closed at the end.
    """
    token = tickets is None and persons is None
    try:
        if persons is not None:
            made = store.tickets_for(persons.read_text(encoding="utf-8").splitlines())
        else:
            made = [store.new_token()] if tickets is None else store.new_tickets(tickets)
    finally:
        store.close()
    if as_json:
        print_json({"token": made[0]} if token else {"tickets": made})
    else:
        print("\n".join(made))


def _times(times: list[int]) -> str:
    if len(times) <= 8:
        return ", ".join(f"{n:,}" for n in times)
    return ", ".join([*(f"{n:,}" for n in times[:5]), "...", *(f"{n:,}" for n in times[-2:])])
