# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story of one evening, told by the real playbooks: rent, join, work, give back, and compare the bills.

``python -m sandbox.demo`` (or ``make demo``) starts a sandbox of its own and ends it. Exit code 0 only when nothing is left anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import httpx

from .running import ROOT, Running

DOCUMENTS = ROOT / "examples" / "demo"
JOB = "/api/v1/namespaces/default/pods/training-job"
SPEED = float(os.environ.get("TGP_DEMO_SPEED", "60"))


class Demo:
    """The playbooks and the world they are run against."""

    def __init__(self, folder: Path) -> None:
        self.started = time.monotonic()
        self.sandbox = Running(folder, speed=SPEED)
        self.environment = self.sandbox.environment
        self.world, self.close = self.sandbox.world, self.sandbox.close

    def kube(self, method: str, path: str, body: t.Any = None) -> httpx.Response:
        """A call to the sandbox's Kubernetes as its administrator."""
        return self.sandbox.kube.request(method, path, json=body).raise_for_status()

    def playbook(self, name: str, *arguments: str) -> None:
        """Run a playbook as a user would; any failure ends the demo."""
        command = ["ansible-playbook", f"playbooks/{name}.yml", "-e", f"tgp_documents={DOCUMENTS.relative_to(ROOT)}", *arguments]
        print(f"\n$ {' '.join(command)}", flush=True)
        code = subprocess.run(command, cwd=ROOT, env=self.environment, check=False).returncode
        if code != 0:
            raise SystemExit(f"{name}.yml ended with {code}")

    def until(self, what: t.Callable[[], bool], words: str) -> None:
        """Wait, in real seconds, for something that the world does by itself."""
        end = time.monotonic() + 60
        while not what():
            if time.monotonic() > end:
                raise SystemExit(f"did not happen in a minute: {words}")
            time.sleep(0.05)

    def later(self, seconds: int) -> None:
        print(f"\n... {seconds // 60} minutes later ...", flush=True)
        self.sandbox.advance(seconds)


def say(title: str) -> None:
    print(f"\n\033[1m== {title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)


def job(node: str) -> dict[str, t.Any]:
    """A pod that occupies one GPU of the pool's machines."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "training-job", "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "train", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ],
        },
    }


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its sandbox must not outlive it
    folder = Path(tempfile.mkdtemp(prefix="tgp-demo-"))
    try:
        demo = Demo(folder)
        try:
            return story(demo)
        finally:
            demo.close()
    except KeyboardInterrupt:
        print("\nended by Ctrl-C", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def story(demo: Demo) -> int:
    say("Is everything in place? Documents, credentials, rights, templates")
    demo.playbook("validate")

    say("Two rented machines for pool training, one of our own for pool own")
    demo.playbook("provision", "-e", json.dumps({"tgp_nodes": {"training": 2, "own": 1}}))

    say("The machines are hosts of the inventory")
    inventory = ROOT / "examples" / "inventory" / "gpu.tgp.yml"
    subprocess.run(["ansible-inventory", "-i", str(inventory), "--graph"], cwd=ROOT, env=demo.environment, check=True)

    say("Status")
    demo.playbook("status")
    joined = [_joined(claim) for claim in _claims(demo)]
    busy = sorted(one["name"] for one in joined if one["pool"].endswith("/training"))[0]
    say(f"Somebody uses a GPU of {busy}; the others have nothing to do")
    demo.kube("POST", "/api/v1/namespaces/default/pods", job(busy))
    demo.later(15 * 60)
    demo.playbook("reap")
    demo.later(11 * 60)
    demo.playbook("reap")
    left = [one for one in demo.world()["machines"] if one["state"] in ("active", "on")]
    if [one["name"] for one in left] != [busy]:
        raise SystemExit(f"expected only {busy} to be left, found {[one['name'] for one in left]}")

    say("The job ends; its machine goes, too")
    demo.kube("DELETE", JOB)
    demo.until(lambda: demo.sandbox.kube.get(JOB).status_code == 404, "the job's pod is gone")
    demo.later(60)
    demo.playbook("reap")
    demo.later(11 * 60)
    demo.playbook("reap")

    say("What is left, and what it cost")
    demo.playbook("status")
    return verdict(demo, joined)


def verdict(demo: Demo, joined: list[dict[str, t.Any]]) -> int:
    """The closing table: every node, the counts of what is left in the world, and both bills."""
    world = demo.world()
    ledger = {line["name"]: line for line in _ledger(demo)}
    ended = {one["name"]: one for one in world["machines"]}
    print(f"\n  {'node':<34} {'cloud':<8} {'model':<18} {'$/h':>6} {'joined after':>13} {'our bill':>10} {'world bill':>11}  state")
    ours, theirs = Decimal(0), Decimal(0)
    for one in sorted(joined, key=lambda row: row["name"]):
        line, machine = ledger.get(one["name"], {}), ended.get(one["name"], {})
        mine, real = Decimal(line.get("cost", "0")), Decimal(machine.get("cost", "0"))
        ours, theirs = ours + mine, theirs + real
        state = f"gone ({line['reason']})" if line else "STILL THERE"
        print(
            f"  {one['name']:<34} {one['cloud']:<8} {one['model']:<18} {one['price_hour']:>6} {one['joined']:>13} "
            f"{mine:>10.4f} {real:>11.4f}  {state}"
        )
    totals = world["totals"]
    claims = len(_claims(demo))
    same = "equal" if ours == theirs else f"differ by ${abs(ours - theirs):.4f} (a started minute is billed whole)"
    print(f"\n  our bill ${ours:.4f}, the world's own bill ${theirs:.4f}: {same}")
    left = {**{what: totals[what] for what in ("instances", "devices", "keys")}, "tokens": _tokens(demo), "claims": claims}
    print("  nothing is left: " if not any(left.values()) else "  LEFT BEHIND: ", end="")
    print(", ".join(f"{number} {what}" for what, number in left.items()))
    print(f"  the whole story took {time.monotonic() - demo.started:.0f} s, {SPEED:.0f} times as fast as the clock on the wall")
    return 1 if any(left.values()) else 0


def _configmaps(demo: Demo) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", demo.kube("GET", "/api/v1/namespaces/tgp-system/configmaps").json()["items"])


def _claims(demo: Demo) -> list[dict[str, t.Any]]:
    ours = (one for one in _configmaps(demo) if one["metadata"].get("labels", {}).get("tgp.io/claim") == "true")
    return [json.loads(one["data"]["claim.json"]) for one in ours]


def _tokens(demo: Demo) -> int:
    """Bootstrap tokens that are still good."""
    secrets = demo.kube("GET", "/api/v1/namespaces/kube-system/secrets").json()["items"]
    return sum(one.get("type") == "bootstrap.kubernetes.io/token" for one in secrets)


def _joined(claim: dict[str, t.Any]) -> dict[str, str]:
    """What the closing table says of a machine while it is there."""
    started, ready = (datetime.fromisoformat(claim[key]) for key in ("launch_started", "initialized"))
    offer = claim["offer"]
    return {
        "name": claim["name"],
        "pool": claim["pool"],
        "cloud": claim["cloud"],
        "model": offer["model"],
        "price_hour": str(claim["price_paid"] or claim["reserved_price"]),
        "joined": f"{(ready - started).total_seconds():.0f} s",
    }


def _ledger(demo: Demo) -> list[dict[str, t.Any]]:
    lines: list[dict[str, t.Any]] = []
    for one in _configmaps(demo):
        if "ledger" in one["metadata"]["name"]:
            for text in one.get("data", {}).values():
                lines += [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return lines


if __name__ == "__main__":
    sys.exit(main())
