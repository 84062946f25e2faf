# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Product faults drawn from tests/mutation/mutations.yml, and whether chaos finds them: each by the story that stands on its rule's edge,
else by stories drawn by chance. A fault is one changed line in a copy of the collection; a process of its own plays against that copy."""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import typing as t
from pathlib import Path

from tests.mutation import copies

from .edges import EDGES
from .grounds import ALL
from .story import Story, Violated

SECONDS = 55.0  # of CPU for one fault
Say = t.Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Found:
    """What chaos found: the number of the first invariant that was broken ("" for none), what it said, and how many runs it took."""

    number: str
    text: str
    runs: int
    story: str = ""


def drawable() -> list[copies.Mutation]:
    """Faults of rules that change something in the world."""
    return [one for one in copies.MUTATIONS if "edge" in one]


def draw(seed: str, count: int) -> list[copies.Mutation]:
    """So many of them, by seed."""
    return random.Random(f"faults {seed}").sample(drawable(), count)


# ---- in the process that imports the copy


def stories(edge: str, seed: str) -> t.Iterator[Story]:
    """The story on the edge of the rule, then drawn ones, one ground after the other."""
    if edge in EDGES:
        yield Story(EDGES[edge].ground, "edge", EDGES[edge].lines)
    for number in range(1000):
        yield Story.draw(sorted(ALL)[number % len(ALL)], f"{seed}/{number}")


def hunt(edge: str, seed: str, seconds: float = SECONDS) -> Found:
    """Play until an invariant is broken, or for so many seconds of CPU."""
    runs = 0
    for story in stories(edge, seed):
        said: list[str] = []
        try:
            runs += story.play(said.append).runs
        except Violated as error:
            number = re.match(r"I-\d+", str(error))
            return Found(number[0] if number else "stuck", str(error).splitlines()[0], runs + len(said) + 1, story.text())
        except Exception:  # noqa: BLE001 - a fault may end a story in a way that nobody foresaw
            return Found("error", traceback.format_exc().splitlines()[-1], runs + len(said) + 1, story.text())
        if time.process_time() > seconds:
            break
    return Found("", "", runs)


def tell(edge: str, seed: str, seconds: float) -> None:
    """What a hunt found, as the last line of output."""
    print(json.dumps(dataclasses.asdict(hunt(edge, seed, seconds))))


# ---- in the process that makes the copy


def search(copy: Path, mutation: copies.Mutation, seed: str, seconds: float = SECONDS) -> tuple[Found, str]:
    """What chaos finds of one fault, and the rule's own test that notices it."""
    with copies.mutated(copy, mutation):
        command = [sys.executable, "-B", "-m", "tests.chaos", "hunt", "--edge", mutation.get("edge", ""), "--seed", seed]
        command += ["--seconds", str(seconds)]
        told = subprocess.run(
            command, cwd=copies.ROOT, env=copies.environment(copy), capture_output=True, text=True, timeout=900, check=False
        )
        noticed = copies.run(copy, mutation)
    if told.returncode:
        raise RuntimeError(f"{mutation['what']}: {told.stderr[-2000:]}")
    return Found(**json.loads(told.stdout.splitlines()[-1])), copies.noticed_by(noticed.returncode, noticed.stdout)


def table(seed: str, count: int, say: Say, *, seconds: float = SECONDS, full: bool = False) -> int:
    """Print the table of drawn faults (``count`` 0: of all); how many of them no invariant found. A story that got stuck or ended with an
    error is counted apart: it shows that something is wrong, and not what. ``full``: with what was said, and the story."""
    by_what: collections.Counter[str] = collections.Counter()
    wanted = drawable() if count == 0 else draw(seed, count)
    with tempfile.TemporaryDirectory(prefix="tgp-faults-") as folder:
        copy = copies.copy_to(Path(folder))
        say(f"{'rule':5} {'file':24} {'fault':66} {'found by':9} {'runs':>5}  {'its own test'}")
        for one in wanted:
            found, test = search(copy, one, seed, seconds)
            by_what[found.number if found.number in ("", "stuck", "error") else "invariant"] += 1
            by = found.number or "no story"
            file = copies.locate(one).path.rpartition("/")[2]
            say(f"{one['rule']:5} {file:24} {one['what']:66} {by:9} {found.runs:>5}  {test or 'none'}")
            if full and found.number:
                say(f"      {found.text}\n{found.story}")
    say(
        f"{by_what['invariant']} of {len(wanted)} found by an invariant, {by_what['stuck']} by a story that got stuck, "
        f"{by_what['error']} by an error, {by_what['']} by none"
    )
    return len(wanted) - by_what["invariant"]
