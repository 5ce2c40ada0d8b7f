"""``python -m tests.goldens``: compute every case anew and write ``goldens.json``.

Only lines of cases that differ by the rule of ``recording.py`` are rewritten, so that another machine's last
digits change nothing. To be done where a fault was mended, and then named in the change; a change of form
changes no golden.

    python -m tests.goldens [PART]           write, all cases or those with PART in their name
    python -m tests.goldens --check [PART]   write nothing, say what differs
    python -m tests.goldens --bits [PART]    the same, and bytes of floats must be equal too (on one machine)
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from . import recording
from .cases import CASES


def main(arguments: list[str]) -> int:
    flags = {a for a in arguments if a.startswith("--")}
    if flags - {"--check", "--bits"}:
        print(__doc__)
        return 2
    part = next((a for a in arguments if not a.startswith("--")), "")
    kept, checking = recording.read(), bool(flags)
    new = dict(kept) if part else {name: kept[name] for name in kept if name in CASES}
    seconds: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    differing = [] if part else sorted(set(kept) - set(CASES))
    for name, case in CASES.items():
        if part not in name:
            continue
        group, begin = name.partition(":")[0], time.perf_counter()
        found = recording.plain(case())
        seconds[group] += time.perf_counter() - begin
        cases[group] += 1
        there = recording.differences(kept.get(name), found, bits="--bits" in flags)
        changes = list(there)
        if changes:
            differing.append(name)
            new[name] = found
            if checking or name in kept:
                print(f"{name}\n    " + "\n    ".join(changes[:5]))
    for group, count in cases.items():
        print(f"{group}: {count} cases, {seconds[group]:.1f} s")
    print(f"{len(differing)} differ" if checking else f"{len(differing)} written")
    if not checking:
        recording.write(new)
    return int(checking and bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
