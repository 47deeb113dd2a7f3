"""``python -m tests.chaos``: migrations under faults until so many have struck; see the README beside it."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.draw import Planned, draw
from tests.chaos.report import latest, write_report
from tests.chaos.worlds import ALL_CLASSES, World, order_of, weighed, world_of

from lab.runfolder import ROOT


def run_part(world: World, folder: Path, seed: int, number: int, planned: list[Planned]) -> dict[str, Any]:
    """One migration; what came of it, as plain values."""
    cutover = order_of(number)
    print(f"part {number} ({world.name}, {cutover}): {', '.join(p.name for p in planned)}", flush=True)
    began = time.monotonic()
    result: dict[str, Any] = {
        "seed": seed,
        "part": number,
        "world": world.name,
        "cutover": cutover,
        "commit": _commit(),
        "planned": [[p.name, p.moment, round(p.wait_s, 2), round(p.lasts_s, 2)] for p in planned],
    }
    part = None
    try:
        with world.cluster(folder) as cluster:
            if cluster.no_hosts:
                print(f"  no network is cut, no disk full: {cluster.no_hosts}", flush=True)
            name = f"chaos-{seed}-{number}"
            part = world.part(cluster, name, cutover, seed, said=lambda line: print(line, flush=True))
            violations = [str(v) for v in part.run(planned)]
    except Exception as error:  # a part that could not be judged is no part that kept its promises
        traceback.print_exc()
        violations = [f"harness: {type(error).__name__}: {error}"]
    result["violations"] = violations
    result["seconds"] = round(time.monotonic() - began)
    for what, nothing in (("state", ""), ("why", ""), ("left", []), ("struck", {}), ("after_switch", 0)):
        result[what] = nothing if part is None else getattr(part, what)
    print(f"part {number}: {result['state']} in {result['seconds']} s, {sum(result['struck'].values())} faults")
    for violation in violations:
        print(f"  BROKEN {violation}", flush=True)
    return result


def _commit() -> str:
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def parts_of(folder: Path) -> list[dict[str, Any]]:
    """The results in a folder, of each part its last one."""
    path = folder / "parts.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return latest(json.loads(line) for line in lines)


def next_part(folder: Path, seed: int) -> int:
    """The first part of this seed that has no result in the folder."""
    done = {p["part"] for p in parts_of(folder) if p["seed"] == seed}
    return next(n for n in itertools.count() if n not in done)


def plan_of(folder: Path, seed: int, number: int, names: Sequence[str], faults: int) -> list[Planned]:
    """What is to strike a part: what struck it before in this folder, else what has struck others least so far."""
    known = parts_of(folder)
    counts: Counter[str] = Counter()
    for part in known:
        if (part["seed"], part["part"]) == (seed, number):
            return [Planned(*words) for words in part["planned"]]
        counts.update(part["struck"])
    classes = {n: c for n, c in world_of(number).classes().items() if not names or n in names}
    return draw(random.Random(f"{seed}/{number}"), faults, classes, weighed(counts)) if classes else []


def main(argv: list[str] | None = None) -> int:
    """Run parts until enough faults have struck. 0 where no promise was broken, 1 where one was."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200, help="stop once so many have struck, in all of the folder")
    parser.add_argument("--each", type=int, default=8, help="faults that are planned for each migration")
    parser.add_argument("--part", type=int, help="the first migration; by default those without a result in the folder")
    parser.add_argument("--only", help="this one migration", action="store_true")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no further migration after so long")
    parser.add_argument("--classes", default="", help="of these classes alone, separated by commas")
    parser.add_argument("--folder", type=Path, help="keep everything here, one folder a part; a report is left in it")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces and small disks are removed then, too
    logging.getLogger("kafka").setLevel(logging.WARNING)  # it tells of every connection
    names = [n for n in args.classes.split(",") if n]
    if unknown := set(names) - set(ALL_CLASSES):
        parser.error(f"no such class of faults: {', '.join(sorted(unknown))}. There are: {', '.join(ALL_CLASSES)}")
    with tempfile.TemporaryDirectory(prefix="topicshift-chaos-") as made:
        folder = args.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        broken = _row(args, folder.resolve(), names)
    return int(broken)


def _row(args: argparse.Namespace, folder: Path, names: Sequence[str]) -> bool:
    began, broken, text = time.monotonic(), False, ""
    number = next_part(folder, args.seed) if args.part is None else args.part
    while time.monotonic() - began < args.minutes * 60:
        planned = plan_of(folder, args.seed, number, names, args.each)
        at = folder / f"{args.seed}-{number}-{time.strftime('%H%M%S')}"
        result = run_part(world_of(number), at, args.seed, number, planned)
        broken = broken or bool(result["violations"])
        with (folder / "parts.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        known = parts_of(folder)
        text = write_report(known, folder / "report.md")
        number = next_part(folder, args.seed) if args.part is None else number + 1
        if args.only or sum(sum(p["struck"].values()) for p in known) >= args.faults:
            break
    print(text)
    return broken


if __name__ == "__main__":
    sys.exit(main())
