# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health check for Argo CD in examples/gitops, run by Lua 5.1 with the libraries that Argo CD opens, on statuses as runs write them."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.model import Pause, Phase, Plan, Shortfall
from lupa import lua51

from schemas.crd_status import status

from .build import NOON, node, seen
from .test_object_status import POOL, machine, of, wanted

ROOT = Path(__file__).resolve().parents[3]
KEY = "resource.customizations.health.tgp.io_GPUNodePool"
CLOSED = ("string", "io", "debug", "math", "coroutine", "require", "dofile", "loadfile", "python")  # to a script of Argo CD
SHORT = Plan(shortfall=(Shortfall("default/p", 2, "maxHourlyPrice"),))
LIMIT = Plan(shortfall=(Shortfall("default/p", 2, "limit:maxNodes"),))
MACHINES = {"claims": (machine(1), machine(2)), "nodes": (node("tgp-a1b2c3d4-p-00001"), node("tgp-a1b2c3d4-p-00002"))}
PAUSED = {"pauses": (Pause("pool", "default/p", "provider incident", NOON),)}


def health(status: dict[str, t.Any] | None, **metadata: t.Any) -> tuple[str, str]:
    """Status and message that Argo CD shows."""
    script = yaml.safe_load((ROOT / "examples" / "gitops" / "argocd" / "argocd-cm.yaml").read_text())["data"][KEY]
    lua = lua51.LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    obj = {"kind": "GPUNodePool", "metadata": {"name": "p", "generation": POOL.generation, **metadata}}
    lua.globals().obj = lua.table_from(obj | ({} if status is None else {"status": status}), recursive=True)
    for name in CLOSED:
        lua.globals()[name] = None
    answer = lua.execute(script)
    assert answer.status in ("Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown")
    return answer.status, answer.message


def pool(world: t.Any, plan: Plan = Plan(), **facts: t.Any) -> dict[str, t.Any]:
    return of(POOL, world, wanted(**facts), plan)


@pytest.mark.parametrize(
    ("status", "metadata", "word", "message"),
    [
        (None, {}, "Progressing", "No run has written a status yet."),
        ({"observedGeneration": 3}, {}, "Progressing", "No run has written a status yet."),
        (status("GPUNodePool")["default"], {}, "Progressing", "No run has written a status yet."),
        (pool(seen(**MACHINES), replicas=2), {"generation": 4}, "Progressing", "earlier version"),
        (pool(seen(**MACHINES), replicas=2), {}, "Healthy", "2 of 2 machines are ready."),
        (pool(seen()), {}, "Healthy", "No machine is asked for."),
        (pool(seen(claims=(machine(1, Phase.BOOTING),)), replicas=1), {}, "Progressing", "0 of 1 machines are ready."),
        (pool(seen(), SHORT, replicas=2), {}, "Progressing", "0 of 2 machines are ready. maxHourlyPrice"),
        (pool(seen(), LIMIT, replicas=2), {}, "Degraded", "limit:maxNodes"),
        (pool(dataclasses.replace(seen(), **PAUSED), replicas=1), {}, "Suspended", "provider incident"),
        (pool(seen(**MACHINES), replicas=2), {"deletionTimestamp": "2026-11-01T00:00:00Z"}, "Progressing", "being deleted"),
    ],
    ids=[
        "no status", "no conditions", "by default", "generation behind", "ready", "asks for nothing", "launching", "no capacity", "stalled",
        "paused", "terminating",
    ],
)  # fmt: skip
def test_argo_cd_shows_the_health_of_a_pool(
    status: dict[str, t.Any] | None, metadata: dict[str, t.Any], word: str, message: str
) -> None:
    found = health(status, **metadata)
    assert found[0] == word and message in found[1]
