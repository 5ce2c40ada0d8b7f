"""The command of the policy service: serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.shell import (
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


@command
def serve(
    study: Annotated[Path, typer.Argument(help="The study file (TOML; docs/service.md).")],
    database: Annotated[
        str | None,
        typer.Option(
            help="File of SQLite, or SQLAlchemy's URL (default: study.sqlite beside the study file)."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8080,
    check: Annotated[
        bool, typer.Option("--check", help="Check the study, print its statement, and end.")
    ] = False,
    rehearse: Annotated[
        int | None, typer.Option(help="So many simulated people against the real service here; then end.")
    ] = None,
    tickets: Annotated[int | None, typer.Option(help="Print so many new one-time tickets, and end.")] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Print a new operator's token, and end.")
    ] = False,
    as_json: JsonFlag = False,
    plugin: PluginOption = None,
) -> None:
    """Serve a study: people's devices fetch plans and send messages, a learner sees releases."""
    from discreet.serve.needs import check_installed

    check_installed()
    if sum((check, rehearse is not None, tickets is not None, operator)) > 1:
        raise ValueError("--check, --rehearse, --tickets, --operator: give one of them")
    announce_compilation()
    from discreet.serve import running
    from discreet.serve.study import read_study

    found = read_study(study, tuple(plugin or ()))
    where = running.database_of(found, database)
    if check:
        from discreet.serve.statement import statement_of

        content = statement_of(found, None if found.ledger is None else dict(found.ledger), "")
        if as_json:
            print_json(content)
            return
        lines = [
            found.name,
            "",
            content["first"],
            "",
            *content["who_sees_what"],
            "",
            *content["side_channels"],
        ]
        for line in lines:
            console().print(line, soft_wrap=True)
        console().print(f"\n{found.releases:,} releases, after {_times(content['releases'])} people")
        return
    if rehearse is not None:
        from discreet.serve.rehearsal import rehearse as run

        rehearsed = found.rehearsed(rehearse)
        with progress_bar("rehearsal", rehearsed.users) as shown:
            result = run(
                rehearsed,
                lambda users: shown(0, users),
                opened=lambda url: say(f"discreet: the operator's page is {url}/ until the rehearsal ends"),
            )
        rows = {
            "people": result.users, "releases": result.releases, "seconds": round(result.seconds, 1),
            "value of the last quarter's policies": result.late, "of the best policy": result.optimal,
            "of the uniform policy": result.uniform,
        }  # fmt: skip
        if as_json:
            print_json(rows)
            return
        table = new_table("a rehearsal with seeded noise", "", right=("",))
        for name, value in rows.items():
            table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}")
        console().print(table)
        return
    if tickets is not None or operator:
        store = running.opened(found, where)
        try:
            made = store.new_tickets(tickets) if tickets is not None else [store.new_token()]
        finally:
            store.close()
        if as_json:
            print_json({"tickets": made} if tickets is not None else {"token": made[0]})
        else:
            print("\n".join(made))
        return
    say(f"discreet: {found.name} at http://{host}:{port}, database {where}")
    running.serve(found, where, host, port)


def _times(times: list[int]) -> str:
    if len(times) <= 8:
        return ", ".join(f"{n:,}" for n in times)
    return ", ".join([*(f"{n:,}" for n in times[:5]), "...", *(f"{n:,}" for n in times[-2:])])
