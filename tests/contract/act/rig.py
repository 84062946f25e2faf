# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox in this process, the fleet modules called against it one by one, and the truth about what they did."""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import json
import os
import re
import threading
import time
import typing as t
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES

from sandbox import strangers
from sandbox.behaviour import Behaviour
from sandbox.box import IN_PROCESS, Box
from sandbox.clock import HostClock, SimClock
from sandbox.scenario import parse
from sandbox.world import Machine
from tests.fixtures.demo import demo_documents

MODULES = "ansible_collections.tgp.gpu.plugins.modules"
URLS = {
    "gcp": "https://gcp.test",
    "lambda": "https://lambda.test",
    "paperspace": "https://paperspace.test",
    "runpod": "https://runpod.test",
    "vast": "https://vast.test",
    "vultr": "https://vultr.test",
    "tailscale": "https://tailscale.test",
    "webhook": "https://power.test",
    "kubernetes": "https://kube.test:6443",
    "mesh_proxy": "http://mesh.test:1056",
    "image_factory": "https://factory.talos.dev",
}
RENTED = ("gcp", "lambda", "paperspace", "runpod", "vast", "vultr")
SCENARIO: dict[str, t.Any] = {
    "lambda": [
        {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 4, "boot": 20},
        {"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 4, "boot": 20},
        {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 4, "boot": 20},
    ],
    "machines": [{"name": "rack-1", "gpus": 1, "boot": 20}, {"name": "rack-2", "gpus": 2, "boot": 20}],
    "timings": {"packages": 5, "mesh": 2, "csr": 1, "ready": 2, "gpu": 4},
    "rate_limits": False,
}
QUICKER = float(os.environ.get("TGP_TEST_QUICKER", "1.25"))  # as on a host so many times as quick: less of the world's time passes
CREATE = "/instance-operations/launch"
DESTROY = "/instance-operations/terminate"
_LOCK = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/tgp-system/leases")
_COUNTER = itertools.count(1)
_DUST = Decimal("1e-12")  # sums of 28 digits whose last ones were rounded
_MICRO = Decimal("0.000001")  # dollars an hour, to which prices are read


def secret_of(cloud: str) -> str:
    """The variable that holds the credential of a cloud."""
    return "GCP_SERVICE_ACCOUNT_CONTENTS" if cloud == "gcp" else f"{cloud.upper()}_API_KEY"


def option_of(cloud: str) -> str:
    """The option that does."""
    return secret_of(cloud).lower()


class Killed(BaseException):
    """The process ends here: nobody may catch it."""


class Cut:
    """Ends the run at the ``number``-th write that matters (1 = the first), before or after its effect. ``seen`` counts writes."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number, self.after, self.seen = number, after, 0
        self._lock = threading.Lock()

    def is_due(self, request: httpx.Request) -> bool:
        """Count a write; true from the cut point on: a dead process sends nothing more."""
        if not is_write(request):
            return False
        with self._lock:
            self.seen += 1
            return self.seen >= self.number


class _Door(httpx.BaseTransport):
    """What stands between the modules and an app: counts nothing, changes nothing, but may end the run."""

    def __init__(self, rig: Rig, inner: httpx.BaseTransport) -> None:
        self._rig, self._inner = rig, inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._rig.watcher(request)
        cut = self._rig.cut
        if cut is None or not cut.is_due(request):
            return self._inner.handle_request(request)
        if cut.after and cut.seen == cut.number:
            self._inner.handle_request(request).read()
        raise Killed(f"{request.method} {request.url.path}")


def is_write(request: httpx.Request) -> bool:
    """Calls that change the world. The run lock's own, and questions asked by POST, do not count."""
    path = request.url.path
    reads = request.method in ("GET", "HEAD") or path.endswith(("/oauth/token", "accessreviews")) or "dryRun" in request.url.params
    return not reads and not _LOCK.search(path)


class Rig:
    """``run`` calls a module; everything else looks at the truth or moves it."""

    def __init__(self, folder: Path, *, speed: float = 200.0, **scenario: t.Any) -> None:
        self.folder = folder
        self.box = Box(parse({**copy.deepcopy(SCENARIO), **scenario}), clock=SimClock(speed / QUICKER), seed=next(_COUNTER)).start()
        self.world, self.clock, self.faults = self.box.world, self.box.world.clock, self.box.faults
        assert self.box.kube is not None
        self.api = self.box.kube
        self.kubeconfig = folder / "kubeconfig"
        self.api.write_kubeconfig(str(self.kubeconfig), URLS["kubernetes"])
        self.documents = demo_documents()
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.cut: Cut | None = None
        self.watcher: t.Callable[[httpx.Request], None] = lambda _request: None
        self.call: t.Callable[[t.Any, Task], dict[str, t.Any]] = lambda code, task: code.run(task)
        self.receivers: dict[str, t.Any] = {}  # root URL → WSGI app
        self.host = HostClock(self.clock)  # of the host that runs the modules; `host.ahead` seconds set it wrong
        self.twins: list[Rig] = []

    def close(self) -> None:
        for twin in self.twins:
            twin.api.stop()
        self.box.stop()

    def twin(self, *, restored: bool = False) -> Rig:
        """The controller of a second cluster with the same id, with the same accounts, mesh and clock: an empty one, or one restored from
        a backup of this one as it is now. Its ``api``, ``kube``, ``claims`` … are its own; its machines join the first cluster."""
        other = copy.copy(self)
        other.api = (strangers.restored if restored else strangers.twin)(self.api, seed=next(_COUNTER))
        other.api.start()
        other.folder = self.folder / f"twin-{len(self.twins)}"
        other.folder.mkdir()
        other.kubeconfig = other.folder / "kubeconfig"
        other.api.write_kubeconfig(str(other.kubeconfig), URLS["kubernetes"])
        other.lines, other.warnings, other.twins = [], [], []
        other.receivers = {**self.receivers, URLS["kubernetes"]: other.api.app}
        self.twins.append(other)
        return other

    # ---- documents

    def document(self, kind: str, name: str) -> dict[str, t.Any]:
        return next(one for one in self.documents if one["kind"] == kind and one["metadata"]["name"] == name)

    @property
    def training(self) -> dict[str, t.Any]:
        """The spec of the pool that rents."""
        return t.cast("dict[str, t.Any]", self.document("GPUNodePool", "training")["spec"])

    @property
    def demo_class(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.document("GPUNodeClass", "demo")["spec"])

    # ---- calling modules

    def run(self, module: str, run_id: str = "", *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """The result of ``fleet_<module>`` or ``offer_info``, called as a play calls it."""
        code = importlib.import_module(f"{MODULES}.{module if module == 'offer_info' else f'fleet_{module}'}")
        defaults = {name: option.get("default") for name, option in code.SPEC["argument_spec"].items()}
        given = {
            "documents": self.documents,
            "run_id": run_id or None,
            "kubeconfig": str(self.kubeconfig),
            "state_dir": str(self.folder / "state"),
            "talos_secrets": self.box.talos.bundle(),
            "control_plane_endpoint": IN_PROCESS,
            **{f"{cloud}_api_url": URLS[cloud] for cloud in RENTED},
            **{option_of(cloud): self.world.secrets.get(secret_of(cloud)) for cloud in RENTED},
            "webhook_url": URLS["webhook"],
            "mesh_proxy": URLS["mesh_proxy"],
            "tailscale_api_url": URLS["tailscale"],
            "tailscale_oauth_client_id": self.world.secrets["TS_OAUTH_CLIENT_ID"],
            "tailscale_oauth_client_secret": self.world.secrets["TS_OAUTH_CLIENT_SECRET"],
        }
        task = Task(
            {**copy.deepcopy(defaults), **copy.deepcopy(given), **params},
            check_mode=check,
            diff_mode=check,
            progress=self._told,
            warn=self.warnings.append,
            clock=self.host,
            transport=self._transport,
        )
        try:
            return self.call(code, task)
        finally:
            if task.events is not None:
                task.events.close()

    def _told(self, line: str) -> None:
        self.lines.append(line)
        print(line)  # shown with a test that fails

    def _transport(self, url: str) -> httpx.BaseTransport | None:
        if url in self.receivers:
            return httpx.WSGITransport(app=self.receivers[url])
        service = next(name for name, root in URLS.items() if url.startswith(root))
        return _Door(self, httpx.WSGITransport(app=self.box.apps[service]))

    def plan(self, mode: str, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return self.run("plan", mode=mode, check=check, **params)

    def unlock(self, run_id: str) -> None:
        """What the play's ``always`` section does, or the death of its process."""
        self.run("unlock", run_id)

    def rent(self, *, nodes: int = 1, pool: str = "training", **params: t.Any) -> dict[str, t.Any]:
        """Plan and launch; the result of the launch, with ``run_id`` and ``plan``. The lock is let go."""
        plan = self.plan("provision", pools=[pool], nodes=nodes, **params)
        try:
            done = self.run("launch", plan["run_id"])
        finally:
            self.unlock(plan["run_id"])
        return {**done, "run_id": plan["run_id"], "plan": plan}

    def join(self) -> dict[str, t.Any]:
        """What fleet_join says of all that are on their way."""
        run_id = f"join-{next(_COUNTER)}"
        try:
            return self.run("join", run_id)
        finally:
            self.unlock(run_id)

    def let_in(self, token_id: str) -> None:
        """Answer the certificate request that this token makes, as the wait of a join does while it runs."""
        kube = connect(Task({"kubeconfig": str(self.kubeconfig)}, clock=self.clock, transport=self._transport))
        try:
            found = self.until(lambda: csr.requests(kube, token_id=token_id), "asks for a certificate")
            assert csr.answer(kube, found[0], token_id=token_id, node=self.claim()["name"]) == "approved"
        finally:
            kube.close()

    def provision(self, **params: t.Any) -> dict[str, t.Any]:
        """Rent and wait; the result of the join."""
        self.rent(**params)
        return self.join()

    def reap(self, mode: str = "reap", **params: t.Any) -> dict[str, t.Any]:
        """Plan and teardown; the result of the teardown, with ``plan``. The lock is let go."""
        plan = self.plan(mode, **params)
        try:
            done = self.run("teardown", plan["run_id"], orphans=plan["orphans"], unrecorded=plan.get("unrecorded", []))
        finally:
            self.unlock(plan["run_id"])
        return {**done, "plan": plan}

    def destroy(self, **params: t.Any) -> dict[str, t.Any]:
        """What destroy.yml does with everything."""
        return self.reap("destroy", all=True, **params)

    @contextlib.contextmanager
    def killed_at(self, number: int, *, after: bool) -> t.Iterator[Cut]:
        """A process that dies at its ``number``-th write."""
        self.cut = Cut(number, after=after)
        try:
            yield self.cut
        except Killed:
            pass
        finally:
            self.cut = None

    # ---- what happens to the world

    def fault(self, kind: str, service: str, method: str = "", path: str = "", **more: t.Any) -> t.Any:
        return self.faults.add({"kind": kind, "service": service, "method": method, "path": path, **more})

    def behave(self, kind: str, **more: t.Any) -> None:
        self.box.machines.behaviours.add(Behaviour.parse({"kind": kind, **more}))

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def outlast_list_delay(self) -> None:
        """Until each cloud's list has to show every machine: what it does not list from now on is missing, however quick this host is."""
        self.advance(1 + max(CAPABILITIES[cloud].list_delay for cloud in RENTED if cloud in CAPABILITIES))

    def until(self, what: t.Callable[[], t.Any], words: str, seconds: float = 60.0) -> t.Any:
        """Wait, in real seconds, for something that the world does by itself."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, f"did not happen: {words}"
            time.sleep(0.01)
        return found

    def kube(self, method: str, path: str, body: t.Any = None) -> t.Any:
        """A call of the cluster's administrator, that has to succeed."""
        status, answer = self.api.request(
            method, path, body, media="application/merge-patch+json" if method == "PATCH" else "application/json"
        )
        assert status < 300, (status, answer)
        return answer

    def refuse_claim(self, name: str, status: int = 409) -> t.Any:
        """No write to this claim succeeds any more: 409 (a controller keeps changing it), 422 (immutable), 403 (admission), 5xx."""
        return self.fault("status", "kubernetes", "PUT", f"configmaps/tgp-claim-{name}$", status=status, times=None)

    def make_immutable(self, name: str) -> None:
        """The claim's ConfigMap becomes immutable: the API server answers each change of it with 422."""
        self.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}", {"immutable": True})

    def damage(self, name: str, text: str | None = None) -> str:
        """Half of the claim's record is lost (or it becomes ``text``); returns what it was."""
        path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}"
        whole = str(self.kube("GET", path)["data"]["claim.json"])
        self.kube("PATCH", path, {"data": {"claim.json": whole[: len(whole) // 2] if text is None else text}})
        return whole

    def lock_elsewhere(self, holder: str = "other-host/4711/other-run") -> None:
        """Another host holds the run lock of this cluster; it renews for as long as nobody calls :meth:`unlock_elsewhere`."""
        path = "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
        with contextlib.suppress(AssertionError):
            self.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 86400, "acquireTime": now, "renewTime": now}
        name = f"tgp-{self.cluster_id}"
        with contextlib.suppress(AssertionError):
            self.kube("DELETE", f"{path}/{name}")
        self.kube("POST", path, {"metadata": {"name": name}, "spec": spec})

    def unlock_elsewhere(self) -> None:
        """The other host ends its run."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{self.cluster_id}"
        self.kube("PATCH", path, {"spec": {"holderIdentity": ""}})

    @property
    def cluster_id(self) -> str:
        """The first eight digits of the UID of namespace kube-system."""
        return str(self.kube("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]).replace("-", "")[:8]

    def pod(self, node: str, name: str = "job", *, budget: bool = False, owner: str = "ReplicaSet", **more: t.Any) -> None:
        """A running pod on a node; with ``budget`` a PodDisruptionBudget that never lets it go. ``more``: further fields of its spec."""
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "x", "controller": True}] if owner else []
        spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}], **more}
        meta = {"name": name, "labels": {"app": name}, "ownerReferences": owners}
        self.kube("POST", "/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
        self.until(lambda: self.kube("GET", f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase") == "Running", "runs")
        if budget:
            guard = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}}
            self.kube("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", guard)

    # ---- the truth

    def machines(self, *, living: bool = True) -> list[Machine]:
        """Rented machines, the oldest first."""
        with self.world.lock:
            found = [one for one in self.world.machines.values() if one.cloud in RENTED and not (living and one.ended)]
        return sorted(found, key=lambda one: one.created)

    def machine(self) -> Machine:
        """The only one that lives."""
        (only,) = self.machines()
        return only

    def writes(self) -> list[str]:
        """Every write the services got, as "service METHOD path", without the run lock's."""
        with self.world.lock:
            return [f"{service} {what}" for _when, service, what in self.world.writes if not _LOCK.search(what)]

    def creates(self) -> int:
        """How many create calls arrived at the cloud."""
        return sum(CREATE in one for one in self.writes())

    def configmaps(self, label: str) -> list[dict[str, t.Any]]:
        status, answer = self.api.request("GET", f"/api/v1/namespaces/tgp-system/configmaps?labelSelector={label}%3Dtrue")
        return answer["items"] if status == 200 else []

    def claims(self) -> dict[str, dict[str, t.Any]]:
        """Claims by name, as recorded; damaged ones are left out."""
        found: dict[str, dict[str, t.Any]] = {}
        for one in self.configmaps("tgp.io/claim"):
            with contextlib.suppress(ValueError):
                found[one["metadata"]["name"].removeprefix("tgp-claim-")] = json.loads(one["data"]["claim.json"])
        return found

    def claim(self) -> dict[str, t.Any]:
        (only,) = self.claims().values()
        return only

    def state(self, name: str) -> dict[str, t.Any]:
        found = [one for one in self.configmaps("tgp.io/state") if one["metadata"]["name"] == f"tgp-state-{name}"]
        return json.loads(found[0]["data"]["state.json"]) if found else {}

    def ledger(self) -> list[dict[str, t.Any]]:
        return [json.loads(text) for one in self.configmaps("tgp.io/ledger") for text in (one.get("data") or {}).values()]

    def nodes(self) -> dict[str, dict[str, t.Any]]:
        return {one["metadata"]["name"]: one for one in self.kube("GET", "/api/v1/nodes")["items"]}

    def tokens(self) -> list[str]:
        _status, answer = self.api.request("GET", "/api/v1/namespaces/kube-system/secrets")
        return [one["metadata"]["name"] for one in answer["items"] if one.get("type") == "bootstrap.kubernetes.io/token"]

    def events(self) -> list[dict[str, t.Any]]:
        file = self.folder / "state" / "events.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def left(self) -> dict[str, int]:
        """What of ours exists anywhere: all zero when everything was given back. Own machines keep their Node."""
        nodes = [name for name in self.nodes() if name.startswith("tgp-")]
        own = [one for one in self.world.machines.values() if one.cloud == "webhook" and one.state in ("on", "starting")]
        counts: dict[str, t.Sized] = {
            "instances": self.machines(), "own": own, "devices": self.box.tailnet.devices(), "keys": self.box.tailnet.live_keys(),
            "nodes": nodes, "claims": self.claims(), "tokens": self.tokens(),
        }  # fmt: skip
        return {name: len(found) for name, found in counts.items() if found}

    def check_bill(self, late: int = 1) -> None:
        """I-13: what the cloud billed for each line lies between the bounds that the line names. Besides, the line is at most ``late`` minutes,
        or the unit that is billed whole, above it: so long nobody could know that the machine was gone already."""
        for line in self.ledger():
            theirs = sum((self.world.machines[one].cost(self.clock.now()) for one in line["ids"]), Decimal(0))
            if problem := unlike(line, theirs, late):
                raise AssertionError(f"{problem}: {line}")

    def blocks(self) -> dict[str, str]:
        """What is on the block list."""
        return {key: value for key, value in self.state("blocklist").items() if key != "history"}


def unlike(line: t.Mapping[str, t.Any], theirs: Decimal, late: int = 1) -> str:
    """What is wrong with a line whose machines were billed ``theirs`` dollars; empty where nothing is. Prices are read to six digits after the
    point, and of machines whose price changes the world bills parts of a second. Nobody else bills own machines, so their bounds say nothing,
    and a minute of theirs is allowed on both sides."""
    price, cost = Decimal(line["price_hour"]), Decimal(line["cost"])
    least, most = Decimal(line["cost_least"]), Decimal(line["cost_most"])
    dust = _DUST + _MICRO * (Decimal(line["seconds"]) / 3600 + 1)
    if not CAPABILITIES[line["cloud"]].rented:
        least, most, dust = cost - price / 60, cost + price / 60, _DUST
    part = price / 3600 if line["granularity"] == 1 else Decimal(0)
    if not least <= cost <= most or not least - dust - part <= theirs <= most + dust:
        return f"${cost} are booked, billed were ${theirs}, and the line says ${least} to ${most}"
    over = price * max(60 * late, line["granularity"]) / 3600
    return f"billed were ${theirs}, and the line is more than ${over} above it" if cost > theirs + over + dust else ""


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def bill(lines: t.Iterable[t.Mapping[str, t.Any]]) -> Decimal:
    return sum((Decimal(str(one["cost"])) for one in lines), Decimal(0))
