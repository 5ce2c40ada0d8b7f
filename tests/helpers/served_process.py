"""A service as a process of its own: ``served_process.py STUDY.json DATABASE PORT seeded|secure LEASE``.

For tests that kill or stop it. The key lies beside the study; the lease is short, so that the next process is
the writer soon.
"""

import json
import sys
from pathlib import Path

from discreet.service import app
from discreet.service import release_worker as turns
from discreet.service import server as running
from discreet.service.study_config import study_of


def main() -> None:
    """Serve until killed."""
    file, database, port, noise, lease = sys.argv[1:]
    app.LEASE = turns.LEASE = float(lease)
    study = study_of(json.loads(Path(file).read_text()), Path(file).parent)
    running.serve(study.for_dry_run() if noise == "seeded" else study, database, "127.0.0.1", int(port))


if __name__ == "__main__":
    main()
