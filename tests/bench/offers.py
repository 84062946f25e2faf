# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P9: asking four clouds at once, reading five thousand offers of one, and launching two hundred machines at that cloud's own pace.

``python -m tests.bench.offers measure|memory|launches`` are the commands that are measured, each in a process of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import time
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast import records
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.api import LIMITS

from sandbox.running import ROOT, Running

from .documents import class_and_pool
from .processes import peak_memory

CLOUDS = ("lambda", "paperspace", "runpod", "vast")
LATENCY = 1.0  # real seconds that the slowest cloud takes for an answer; the others take a quarter of it
OFFERS = 5000
LAUNCHES = 200
_MODULES = "ansible_collections.tgp.gpu.plugins.modules"
Row = tuple[str, str]


def rows(folder: Path) -> list[Row]:
    folder.mkdir()
    return [*_side_by_side(folder / "clouds"), *_parsing(), *_memory(folder / "memory"), *_launches(folder / "launches")]


# ---- four clouds at once


def _side_by_side(folder: Path) -> list[Row]:
    """Each cloud alone, then all; every call is delayed, so that the pauses of the clouds and not our own work are compared."""
    speed = 50.0
    sandbox = _sandbox(folder, speed, "four-clouds")
    try:
        for cloud in CLOUDS:
            seconds = LATENCY if cloud == "vast" else LATENCY / 4
            rule = {"kind": "delay", "service": cloud, "path": "", "seconds": seconds * speed, "times": None}
            sandbox.control.post("/faults", json=[rule]).raise_for_status()
        alone = {cloud: _ask(sandbox, [cloud]) for cloud in CLOUDS}
        together = _ask(sandbox, list(CLOUDS))
    finally:
        sandbox.close()
    slowest = max(alone, key=lambda cloud: alone[cloud])
    return [
        ("P9 offer_info over four clouds: seconds", f"{together:.2f}"),
        (f"  the slowest of them alone ({slowest})", f"{alone[slowest]:.2f}"),
        ("  ratio", f"{together / alone[slowest]:.2f}"),
    ]


def _ask(sandbox: Running, clouds: list[str]) -> float:
    """Seconds of the call itself, in a fresh process, without the imports."""
    done = _self(sandbox, "measure", json.dumps({"clouds": clouds, "gpu_type": ["RTX 4090", "A4000", "A10"], "spot": False}))
    return float(json.loads(done)["seconds"])


# ---- five thousand offers


def _row(number: int) -> dict[str, t.Any]:
    """An offer as the search answers it, with all the fields that are read and as many again that are not."""
    return {
        "id": 8_000_000 + number,
        "ask_contract_id": 8_000_000 + number,
        "machine_id": 10_000 + number // 3,
        "gpu_name": ("RTX 4090", "RTX 3090", "H100 SXM", "A100 SXM4", "RTX 5090")[number % 5],
        "num_gpus": (1, 2, 4, 8)[number % 4],
        "gpu_ram": 24564,
        "cpu_cores": 64,
        "cpu_cores_effective": 16.0,
        "cpu_ram": 257_000,
        "disk_space": 812.4,
        "dph_base": 0.3 + number / 10_000,
        "dph_total": 0.3133333333333333 + number / 10_000,
        "min_bid": 0.15,
        "storage_cost": 0.15,
        "geolocation": ("Sweden, SE", "Oregon, US", "Japan, JP")[number % 3],
        "reliability2": 0.9912345,
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "external": False,
        "cuda_max_good": 12.8,
        "inet_down": 812.3,
        "inet_up": 640.1,
        "direct_port_count": 99,
        "static_ip": True,
        "vms_enabled": number % 2 == 0,
        "duration": 2_592_000.0,
        **{f"other_{one}": number * 1.5 for one in range(40)},
    }


def _parsing() -> list[Row]:
    text = json.dumps([_row(number) for number in range(OFFERS)])
    api, now = Api("vast", "http://vast.test"), datetime.now(timezone.utc)
    best = min(
        _timed(lambda: [records.to_offer(api, row, "bench", 64, now, bid=False) for row in json.loads(text)]) for _ in range(3)
    )
    api.close()
    return [(f"P9 {OFFERS} Vast offers, JSON ({len(text) // 1_000_000} MB) to records: seconds", f"{best:.2f}")]


def _timed(act: t.Callable[[], t.Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _memory(folder: Path) -> list[Row]:
    entries = [
        {
            "gpu": ("RTX 4090", "RTX 3090", "RTX 5090")[number % 3],
            "price": f"{0.2 + number / 10_000:.4f}",
            "stock": 1,
            "vm": number % 2 == 0,
        }
        for number in range(OFFERS)
    ]
    sandbox = _sandbox(folder, 2000.0, {"vast": {"offers": entries}})
    try:
        found = json.loads(_self(sandbox, "memory", json.dumps({"clouds": ["vast"], "spot": False, "history": "file"})))
    finally:
        sandbox.close()
    return [
        (
            f"P9 offer_info over {found['offers']} offers of one cloud: MB of the whole process at its peak",
            f"{found['megabytes']:.0f}",
        ),
        ("  of which before the call (Python, Ansible's and our modules)", f"{found['before']:.0f}"),
    ]


# ---- two hundred launches


def _launches(folder: Path) -> list[Row]:
    speed = 20.0
    entries = [{"gpu": "RTX 4090", "price": f"{0.3 + number / 1000:.3f}", "vm": True} for number in range(LAUNCHES)]
    sandbox = _sandbox(folder, speed, {"vast": {"offers": entries}})
    try:
        file = folder / "documents.yml"
        file.write_text(yaml.safe_dump_all(class_and_pool({"name": "vast"}, LAUNCHES)))
        found = json.loads(_self(sandbox, "launches", str(file)))
        made = sorted(_moment(one["created"]) for one in sandbox.world()["machines"] if one["cloud"] == "vast")
    finally:
        sandbox.close()
    pause = LIMITS["create"].interval
    span, least = (made[-1] - made[0]).total_seconds(), pause * (len(made) - 1)
    gaps = [(later - former).total_seconds() for former, later in zip(made, made[1:], strict=False)]
    return [
        (f"P9 fleet_launch, {found['launched']} machines on Vast: world seconds from the first to the last", f"{span:.0f}"),
        (f"  {len(made) - 1} pauses of {pause} s, which its pacing demands", f"{least:.0f}"),
        ("  ratio", f"{span / least:.3f}"),
        ("  shortest pause between two (seconds)", f"{min(gaps):.1f}"),
        ("  CPU seconds of the launching process", f"{found['cpu']:.2f}"),
    ]


# ---- processes


def _sandbox(folder: Path, speed: float, scenario: str | dict[str, t.Any]) -> Running:
    folder.mkdir()
    if isinstance(scenario, dict):
        file = folder / "scenario.yaml"
        file.write_text(yaml.safe_dump(scenario))
        scenario = str(file)
    return Running(folder, speed=speed, scenario=scenario)


def _self(sandbox: Running, command: str, argument: str) -> str:
    environment = {**sandbox.environment, "TGP_RUNTIME_DIR": str(sandbox.environment["TGP_STATE_DIR"])}
    run = [sys.executable, "-m", "tests.bench.offers", command, argument]
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def _call(name: str, **params: t.Any) -> dict[str, t.Any]:
    module = importlib.import_module(f"{_MODULES}.{name}")
    spec = module.SPEC["argument_spec"]
    usual = {
        key: option.get("default", os.environ.get((option.get("fallback") or (0, [""]))[1][0])) for key, option in spec.items()
    }
    return t.cast("dict[str, t.Any]", module.run(Task(params={**usual, **params})))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _measure(params: dict[str, t.Any]) -> dict[str, t.Any]:
    _call("offer_info", clouds=["vast"], gpu_type=["B200"], cache="none", history="none")  # what is imported on first use
    started = time.perf_counter()
    _call("offer_info", cache="none", history="none", **params)
    return {"seconds": time.perf_counter() - started}


def _peak(params: dict[str, t.Any]) -> dict[str, t.Any]:
    importlib.import_module(f"{_MODULES}.offer_info")
    before = peak_memory("self")
    found = _call("offer_info", **params)
    return {
        "offers": len(found["offers"]),
        "before": before,
        "megabytes": peak_memory("self"),
    }


def _launch(documents: str) -> dict[str, t.Any]:
    plan = _call("fleet_plan", documents=[documents], mode="provision", nodes=LAUNCHES)
    before = resource.getrusage(resource.RUSAGE_SELF)
    done = _call("fleet_launch", documents=[documents], run_id=plan["run_id"])
    after = resource.getrusage(resource.RUSAGE_SELF)
    _call("fleet_unlock", run_id=plan["run_id"])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"launched": len(done.get("launched", plan["launch"])), "cpu": cpu}


if __name__ == "__main__":
    commands: dict[str, t.Callable[[str], dict[str, t.Any]]] = {
        "measure": lambda text: _measure(json.loads(text)),
        "memory": lambda text: _peak(json.loads(text)),
        "launches": _launch,
    }
    print(json.dumps(commands[sys.argv[1]](sys.argv[2])))
