# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``kill -9`` of whole runs on the real control plane, with no more than the shipped rights, at each write that they make. The same
playbook once more brings the world to where it should be; for apply.yml the same plan, and where that is refused a new one. Prints a table.

The writes are those of an uncut run. Each is let take effect, and then the run is killed; what creates, removes or is asked of a cloud
or the mesh is cut before its effect, too. TGP_CLUSTER_CUTS=all does all of that, provision, autoscale and apply (one or more of these)
do it for one life of a machine, some cuts at the writes that decide about money; without it nothing is cut, since it takes long.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import queue
import time
import traceback
import typing as t
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.build import built

from .bench import CLUSTER, Cut, Write
from .lives import Lives, Row
from .plane import Plane, PlaneFailed

pytestmark = pytest.mark.cluster
WANTED = os.environ.get("TGP_CLUSTER_CUTS", "").replace(",", " ").split()
LIVES = ("provision", "autoscale", "apply")  # how a machine comes and goes; what provision.yml rents is given back by reap.yml
_DECIDES = ("phase Provisioning", "ledger", "claim removed")


def cuts(written: t.Sequence[Write], how: str) -> list[Cut]:
    """After each write, and before the first, those to clouds and mesh, and those that remove, evict or close the books."""
    found = []
    for number, write in enumerate(written):
        twice = number == 0 or write.service != CLUSTER or any(word in write.name for word in ("removed", "eviction", "ledger"))
        found += [Cut(write, after) for after in ((False, True) if twice else (True,))]
    if {"all", how} & set(WANTED):
        return found
    money = [cut for cut in found if cut.write.service == "lambda" or any(word in cut.write.name for word in _DECIDES)]
    return money if how == "provision" else [cut for cut in money if cut.write.service == "lambda" and cut.after]


class Work:
    """All lives that are left, for benches that work side by side."""

    def __init__(self) -> None:
        self.lives: queue.SimpleQueue[tuple[str, Cut | None, Cut | None]] = queue.SimpleQueue()
        self.order: dict[tuple[str, str], list[Cut]] = {}
        self.spent: dict[str, list[float]] = {how: [] for how in LIVES}
        self.failures: list[str] = []

    def record(self, bench: Lives, how: str) -> None:
        """An uncut life, and the cuts at its writes. Each bench has one: the first run in a cluster makes what later ones find."""
        began = time.monotonic()
        with bench.sandbox():
            bench.rise(how)
            ups = cuts(bench.recorded(how), how)
            assert bench.soon(bench.up), bench.state()
            [name] = bench.stage.claims()
            bench.fall(how, name)
            downs = cuts(bench.recorded("reap" if how == "provision" else how), how)
            assert bench.soon(bench.down), bench.state()
        if self.order.setdefault((how, "up"), ups) is not ups:
            return
        self.order[how, "down"] = downs
        print(f"\n{how}: recorded in {time.monotonic() - began:.0f} s, {len(ups)} cuts up, {len(downs)} cuts down", flush=True)
        for way, found in (("up", ups), ("down", downs)):
            print(f"  {way}: {'; '.join(dict.fromkeys(cut.write.label for cut in found))}", flush=True)

    def share_out(self) -> None:
        """First all cuts after a write and those at a cloud's, in turn for each way of living, then those before one."""
        lists = []
        for how in {how: None for how, _way in self.order}:
            ways = [
                sorted(self.order[how, way], key=lambda cut: not (cut.after or cut.write.service == "lambda"))
                for way in ("up", "down")
            ]
            lists.append([(how, *pair) for pair in itertools.zip_longest(*ways)])
        for several in itertools.zip_longest(*lists):
            for life in filter(None, several):
                self.lives.put(life)

    def play(self, bench: Lives) -> None:
        while True:
            try:
                how, rise, fall = self.lives.get_nowait()
            except queue.Empty:
                return
            began, known = time.monotonic(), len(bench.rows)
            try:
                with bench.sandbox():
                    bench.life(how, rise, fall)
            except (AssertionError, ValueError, PlaneFailed, httpx.HTTPError):
                self.failures.append(f"{how}, {rise}; {fall}:\n{traceback.format_exc()}")
                print(f"FAILED {self.failures[-1]}", flush=True)
            self.spent[how].append(time.monotonic() - began)
            for row in bench.rows[known:]:
                print(line(row), flush=True)

    def again(self, benches: t.Sequence[Lives]) -> None:
        """Cuts whose write was not sent in their run: which signs of life are noted depends on how fast a machine comes."""
        for bench in benches:
            for how, way, cut in bench.unsent:
                self.lives.put((how, cut, None) if way == "up" else (how, None, cut))
            bench.unsent.clear()


def line(row: Row) -> str:
    cut, effect = row.cut, "after" if row.cut.after else "before"
    return f"| {row.playbook} | {cut.write.label} | {effect} | {row.found} | {row.then} | {row.state} |"


def side_by_side(benches: t.Sequence[Lives], work: t.Callable[[Lives], None]) -> None:
    with ThreadPoolExecutor(len(benches)) as pool:
        for one in [pool.submit(work, bench) for bench in benches]:
            one.result()


@pytest.mark.skipif(not WANTED, reason="set TGP_CLUSTER_CUTS=some to kill runs on the real control plane")
def test_L02_L10_killed_at_every_write_on_a_real_control_plane(
    plane: Plane, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    """What a kill leaves in a real etcd at each write, with the shipped rights, is put right by the next run."""
    began = time.monotonic()
    chosen = [how for how in LIVES if {"all", "some", how} & set(WANTED)]
    assert chosen, f"TGP_CLUSTER_CUTS is all, some or of {', '.join(LIVES)}"
    with contextlib.ExitStack() as planes:
        others = [planes.enter_context(Plane(built("plane", request))) for _how in LIVES[1:]]
        benches, work = [Lives(one, tmp_path / f"bench-{number}") for number, one in enumerate([plane, *others])], Work()
        try:
            shares = dict(zip(benches, itertools.cycle(chosen), strict=False))
            side_by_side(benches, lambda bench: work.record(bench, shares[bench]))
            work.share_out()
            side_by_side(benches, work.play)
            work.again(benches)
            side_by_side(benches, work.play)
        finally:
            rows = [row for bench in benches for row in bench.rows]
            print(f"\n{len(rows)} cuts in {time.monotonic() - began:.0f} s on Kubernetes {plane.get('/version')['gitVersion']}")
            for how in chosen:
                print(f"  {how}: {len(work.spent[how])} lives, {sum(work.spent[how]):.0f} s on one of {len(benches)} planes")
            print(
                "| playbook | write | effect | found by the next run | what was run then | after that |\n|---|---|---|---|---|---|"
            )
            for key, ordered in work.order.items():
                for cut in ordered:
                    for row in rows:
                        if (row.how, row.way, row.cut) == (*key, cut):
                            print(line(row))
            for bench in benches:
                bench.close()
        assert not work.failures, "\n".join(work.failures)
        unsent = [(how, cut) for bench in benches for how, _way, cut in bench.unsent]
        for how, cut in unsent:
            print(f"{how}: {cut} was never sent again")
        assert all(cut.write.name.startswith(("claim: ", "lock kept")) for _how, cut in unsent), unsent
