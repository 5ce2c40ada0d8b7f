"""The files for Docker: what they name exists, nobody has rights, and who reaches which process.

Where nginx is installed, its limits are tried.
"""

from __future__ import annotations

import http.server
import re
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import a_key, a_study, begun
from typer.main import get_command
from waiting import wait_until

from discreet.cli import app
from discreet.service.app import Service, application
from discreet.service.study_config import read_study

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "service"
FILES = {"compose.yaml": "service", "compose.shuffler.yaml": "shuffler"}  # and the process of ours
CADDY = shutil.which("caddy")
NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


def read(name: str) -> Any:
    """A compose file; where it has ``${NAME:-}`` or ``${NAME:?why}``, NAME."""
    text = re.sub(r"\$\{([A-Z_]+)(:[-?][^}]*)?\}", r"\1", (FOLDER / name).read_text())
    return yaml.safe_load(text)


def networks(of: Any) -> set[str]:
    return set(of["networks"])


@pytest.mark.parametrize(("name", "own"), FILES.items())
def test_nobody_has_rights_and_all_that_is_named_exists(name: str, own: str) -> None:
    found = read(name)
    for part, of in found["services"].items():
        if part != "database":  # the image's own user, in a network that leads nowhere
            assert of["read_only"], part
            assert of["cap_drop"] == ["ALL"], part
            assert of["security_opt"] == ["no-new-privileges:true"], part
        assert ("ports" in of) == (part == "caddy")
        for volume in of["volumes"]:
            source, _, target = volume.partition(":")
            assert target
            if source.endswith((".conf", "Caddyfile")):
                assert (FOLDER / source).is_file()
                assert volume.endswith(":ro")
            elif not source.startswith("./"):
                assert source in found["volumes"]
        assert networks(of) <= set(found["networks"])
    build = found["services"][own]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    assert (FOLDER / build["context"] / "pyproject.toml").is_file()


@pytest.mark.parametrize(("name", "own"), FILES.items())
def test_people_reach_the_proxies_and_only_these_reach_what_is_behind(name: str, own: str) -> None:
    found = read(name)
    parts, nets = found["services"], found["networks"]
    assert networks(parts["caddy"]) == {"front"}
    assert networks(parts["limits"]) == {"front", "middle"}
    assert parts[own]["networks"]["middle"] == {"aliases": ["behind"]}
    assert not networks(parts[own]) & networks(parts["caddy"])
    assert [net for net in ("middle", "back") if net in nets and not nets[net]["internal"]] == []
    assert "reverse_proxy limits:8080 {" in (FOLDER / "Caddyfile").read_text()
    assert "set $behind http://behind:8080;" in (FOLDER / "limits.conf").read_text()
    if own == "service":
        assert networks(parts["database"]) == {"back"}
        assert networks(parts[own]) == {"middle", "back"}


def test_proxies_let_the_same_addresses_through_and_the_operators_page_is_none(tmp_path: Path) -> None:
    """All that the service describes, but what is for those who run it."""
    caddy = re.search(r"@inside not path (.*)\n\trespond @inside 404\n", (FOLDER / "Caddyfile").read_text())
    limits = (FOLDER / "limits.conf").read_text()
    people = re.search(r"location ~ \^/\((.*)\)\$ \{", limits)
    assert caddy
    assert people
    let = {"/" + one.replace("[0-9]+", "*") for one in people[1].split("|")} | {"/tickets"}
    assert set(caddy[1].split()) == let
    assert "location = /tickets {" in limits
    assert "location / { return 404; }" in limits
    described, key = set[str](), a_key(tmp_path)
    for trust in ("central", "shuffle"):
        with closing(begun(a_study(trust=trust), tmp_path / trust)) as store:
            described |= set(application(Service(a_study(trust=trust), store, key)).openapi()["paths"])
    verbs = {f"/operator/{verb}" for verb in ("pause", "resume", "extend", "revoke")}
    inside = {one.replace("{number}", "*") for one in described} - let
    assert inside == {"/health", "/live", "/ready", "/metrics", *verbs}


def test_service_and_shuffler_share_nothing() -> None:
    both = [read(name) for name in FILES]
    assert both[0]["name"] != both[1]["name"]  # whose volumes and networks are so called
    mounted = [
        {one.partition(":")[0] for one in found["services"][own]["volumes"]}
        for found, own in zip(both, FILES.values(), strict=True)
    ]
    assert mounted[0] & mounted[1] == {"kernels"}  # of either project, a volume of its own
    assert all(found["volumes"]["kernels"] is None for found in both)


def test_the_commands_are_of_our_command_line() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert lines.index("USER 10001") > lines.index("FROM python:3.12-slim")
    (entry,) = (yaml.safe_load(one.split(" ", 1)[1]) for one in lines if one.startswith("ENTRYPOINT"))
    service, shuffler = (read(name)["services"][own] for name, own in FILES.items())
    ours: Any = get_command(app)
    for words, how in (
        (entry, {}),
        ([*entry, "--tickets", "500"], {"tickets": 500}),
        ([*shuffler["entrypoint"], *shuffler["command"]], {"service": "SERVICE_URL", "port": 8080}),
        ([*shuffler["entrypoint"], "--key"], {"key": True}),
    ):
        assert words[0] == "/venv/bin/discreet"
        context = ours.commands[words[1]].make_context(words[1], list(words[2:]))
        wanted = {"study": Path("/study/study.toml"), "host": "0.0.0.0"}
        assert (context.params | wanted | how) == context.params
    (option,) = service["environment"]
    known = [one.envvar for name in ("serve", "shuffler") for one in ours.commands[name].params]
    assert known.count(option) == 2
    for name in ("study.toml", "shuffle.toml"):
        assert read_study(FOLDER / name).users == 20_000


@pytest.mark.skipif(CADDY is None, reason="no Caddy")
def test_caddy_reads_its_file() -> None:
    said = subprocess.run(
        [str(CADDY), "adapt", "--adapter", "caddyfile", "--config", FOLDER / "Caddyfile"],
        env={"STUDY_HOST": "study.example", "HOME": "/tmp"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert '"host":["study.example"]' in said
    assert '"upstreams":[{"dial":"limits:8080"}]' in said
    assert '"logging"' not in said


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def limited(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """nginx with our limits before something that keeps what it was asked: (address, headers)."""
    asked: list[Any] = []

    class Behind(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    text = (FOLDER / "limits.conf").read_text()
    changes = (
        ("listen 8080;", f"listen 127.0.0.1:{port};"), ("behind:8080", f"127.0.0.1:{server.server_port}"),
        ("rate=20r/s", "rate=20r/m"), ("rate=1r/s", "rate=1r/m"),  # however slow this machine is
        ("/tmp/", f"{folder}/"), ("    set_real_ip_from 10.0.0.0/8;", "    set_real_ip_from 127.0.0.1;"),
    )  # fmt: skip
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "nginx.conf").write_text(text)
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            [str(NGINX), "-c", folder / "nginx.conf", "-g", "daemon off;"], stdout=said, stderr=said
        )
    try:
        wait_until(lambda: running.poll() is not None or is_open(port))
        assert running.poll() is None, (folder / "said").read_text()
        yield f"http://127.0.0.1:{port}", asked
    finally:
        running.terminate()
        running.wait()
        server.shutdown()
        server.server_close()


@pytest.mark.service
@pytest.mark.skipif(NGINX is None, reason="no nginx")
def test_limits_of_rate(tmp_path: Path) -> None:
    import httpx

    with limited(tmp_path) as (url, asked), httpx.Client(base_url=url) as client:
        codes = Counter[int]()
        for _ in range(260):
            answer = client.post("/messages", json={}, headers={"X-Forwarded-For": "203.0.113.7"})
            codes[answer.status_code] += 1
            if answer.status_code == 429:
                assert answer.json()["reason"] == "often"
                assert answer.headers["Retry-After"] == "1"
        assert codes[202] + codes[429] == 260
        assert 201 <= codes[202] < 250
        other = {"X-Forwarded-For": "203.0.113.8"}  # another address has its own
        assert client.post("/messages", json={}, headers=other).status_code == 202
        issued = Counter(client.post("/tickets", json={}, headers=other).status_code for _ in range(30))
        assert 6 <= issued[202] < 15
        assert client.post("/messages", content=b"0" * 4_300_000, headers=other).status_code == 413
        for inside in (
            "/",
            "/operator",
            "/live",
            "/ready",
            "/metrics",
            "/health",
            "/openapi.json",
            "/releases/",
            "/plan/",
            "/docs",
        ):
            assert client.get(inside, headers=other).status_code == 404
    assert not any("203.0.113" in str(one) for one in asked)  # addresses end here
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or path.name == "nginx.conf" or b"203.0.113" not in path.read_bytes()
