# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bench_mesh.yml as a user runs it: its table, its exit status, its check mode, and what a killed or interrupted run leaves."""

from __future__ import annotations

import signal
import typing as t

from .box import NOTHING, Sandbox

IMAGE = f"registry.example.org/tools/iperf3@sha256:{'0' * 64}"
PODS = "/api/v1/namespaces/tgp-system/pods?labelSelector=tgp.io/bench-mesh"
POOL = {"pool": "training"}
BENCH = {**POOL, "bench_image": IMAGE, "bench_seconds": 5}


def pods(sandbox: Sandbox) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in sandbox.get(PODS)["items"] if not pod["metadata"].get("deletionTimestamp"))


def test_S3_26_the_playbook_prints_a_table(start: t.Callable[..., Sandbox]) -> None:
    sandbox = start(speed=20)
    sandbox.playbook("provision", extra_vars={**POOL, "nodes": 2}).succeeded()
    first, second = sorted(one["name"] for one in sandbox.living())

    before = sandbox.writes()
    refused = sandbox.playbook("bench_mesh", extra_vars=POOL)
    assert refused.rc == 2 and "tgp_bench_image is missing" in refused.words and "publishes no image" in refused.words
    unknown = sandbox.playbook("bench_mesh", extra_vars={**BENCH, "from_node": first})
    assert unknown.rc == 2 and "given together" in unknown.words
    checked = sandbox.playbook("bench_mesh", extra_vars=BENCH, check=True).succeeded()
    assert "Would measure" in checked.words and f"{first} {second} tailscale" in checked.words
    assert sandbox.writes() == before and pods(sandbox) == []

    measured = sandbox.playbook("bench_mesh", extra_vars=BENCH).succeeded()
    assert measured.count("changed") == 0
    assert f"{first} {second} → 18.40 941.3 12 tailscale unknown" in measured.words
    assert f"{first} {second} ← 875.4 12 tailscale unknown" in measured.words
    made = [one for one in sandbox.writes()[len(before) :] if "/pods" in one]
    assert [one.split()[1] for one in made] == ["POST", "POST", "DELETE", "DELETE"] and pods(sandbox) == []

    wrong = sandbox.playbook("bench_mesh", extra_vars={**BENCH, "bench_image": "registry.example.org/tools/odd:1"})
    assert wrong.rc == 2 and "is not JSON: 'iperf Done.'" in wrong.words and "not pinned by a digest" in wrong.words
    assert pods(sandbox) == []

    run = sandbox.begin(*sandbox.arguments("bench_mesh", extra_vars=BENCH))
    sandbox.until(lambda: len(pods(sandbox)) == 2, "both pods are there")
    run.kill()
    left = pods(sandbox)
    assert len(left) == 2
    sandbox.playbook("bench_mesh", extra_vars=BENCH).succeeded()
    assert pods(sandbox) == []

    for number in (signal.SIGINT, signal.SIGTERM):
        run = sandbox.begin(*sandbox.arguments("bench_mesh", extra_vars=BENCH))
        sandbox.until(lambda: len(pods(sandbox)) == 2, "both pods are there")
        run.process.send_signal(number)
        run.finish().failed()
        sandbox.until(lambda: pods(sandbox) == [], "an interrupted run removes its pods", seconds=20)

    sandbox.playbook("destroy", extra_vars=POOL).succeeded()
    assert sandbox.left() == NOTHING
