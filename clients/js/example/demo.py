"""The example page and its service on this machine: ``python clients/js/example/demo.py [VISITORS]``.

Prints one address for each visitor (default 5), good for one visit each, and the operator's page. Ends with
Ctrl-C.
"""

from __future__ import annotations

import functools
import http.server
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from discreet.service.dry_run import promised_by
from discreet.service.server import in_background, key_of
from discreet.service.study_config import Study, read_study

FOLDER = Path(__file__).parent


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Files, and no log of who asked."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def files(port: int) -> Iterator[str]:
    """The page's files at an address; port 0: any."""
    handler = functools.partial(_Quiet, directory=str(FOLDER.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def addresses(page: str, service: str, key: str, study: Study, tickets: list[str]) -> list[str]:
    """One for each visitor: what stands behind # is sent to nobody."""
    about = {"service": service, "key": key, "identity": study.identity, "epsilon": promised_by(study)}
    return [f"{page}/example/index.html#{urlencode(about | {'ticket': one})}" for one in tickets]


def main() -> None:
    """Serve both until Ctrl-C."""
    visitors = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="discreet-example-") as folder, files(8090) as page:
        study = replace(read_study(FOLDER / "study.toml"), folder=Path(folder), origins=(page,))
        key = key_of(study)
        with in_background(study, Path(folder) / "study.sqlite", key) as (url, service):
            print(f"The operator's page: {url}\nA visit each:")
            print("\n".join(addresses(page, url, key.public, study, service.store.new_tickets(visitors))))
            try:
                while True:
                    time.sleep(60)
            except KeyboardInterrupt:
                pass


if __name__ == "__main__":
    main()
