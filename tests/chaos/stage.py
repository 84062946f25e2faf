# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox under a loom, in which runs of the playbooks are played, cut short, and watched at every call that leaves them."""

from __future__ import annotations

import collections
import copy
import dataclasses
import typing as t
from decimal import Decimal
from pathlib import Path

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task

from sandbox import dra_driver, wsgi
from sandbox.behaviour import Behaviours
from sandbox.clock import HostClock
from sandbox.faults import Fault
from sandbox.gcp_account import Account as GcpAccount
from sandbox.picture_accounts import paperspace_extras
from sandbox.vultr_account import Account as VultrAccount
from sandbox.world import Machine
from schemas.crds import claim_definition

from ..contract.act.rig import QUICKER, RENTED, URLS, Rig, option_of, secret_of
from . import (
    agents,
    edges,
    exits,
    hub,
    images,
    invariants,
    looks,
    moving,
    objects,
    own,
    pauses,
    queues,
    silence,
    sources,
    strangers,
    switches,
    telling,
    workloads,
)
from . import folder as folder_store
from .adverse import Adverse
from .grounds import Ground
from .loom import Killed, Loom, Process
from .purse import Purse
from .sight import Call, Limits, Run, Sight

_WRONG = ("stale", "body", "status")  # what a fault makes of an answer that is read as if it were true
_SLOW, _FAST = 0.4, 0.02  # seconds on the way to a cloud, and to the cluster, at most


@dataclasses.dataclass(frozen=True)
class Order:
    """What one run is to do. ``kill``: it dies at its call of that number (0 = never), before the call's effect or ``after`` it."""

    playbook: str
    nodes: int = 1
    kill: int = 0
    after: bool = False
    host: str = "a"
    check: bool = False
    pool: str = "training"
    looks: int = 3
    wait: bool = False


@dataclasses.dataclass
class Outcome:
    """How a run ended: ``end`` is ok, killed, or the kind of its error; ``said`` its plan's outcome and results."""

    run: Run
    order: Order
    end: str
    said: dict[str, t.Any]
    error: str = ""


class _Pieces(httpx.SyncByteStream):
    """An answer that drips in. Its call ends with the last piece, or when the run waits no longer."""

    def __init__(self, stage: Stage, call: Call, inner: httpx.SyncByteStream) -> None:
        self._stage, self._call, self._inner = stage, call, inner
        call.cut = True

    def __iter__(self) -> t.Iterator[bytes]:
        yield from self._inner
        self._call.cut = False

    def close(self) -> None:
        self._inner.close()
        self._stage.end(self._call)


class _Door(httpx.BaseTransport):
    def __init__(self, stage: Stage, service: str, inner: httpx.BaseTransport) -> None:
        self._stage, self._service, self._inner = stage, service, inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        stage, loom = self._stage, self._stage.loom
        run, process = stage.run_of.get(loom.current.process), loom.current.process
        if run is None or process is None:
            return self._inner.handle_request(request)
        stage.pause(_FAST if self._service == "kubernetes" else _SLOW)
        path, query = request.url.path, request.url.query.decode()
        call = Call(
            run, self._service, request.method, path + (f"?{query}" if query else ""), request.content.decode(errors="replace"),
            wsgi.is_write(request.method, path, query),
        )  # fmt: skip
        due = stage.begin(call, process)
        response = self._send(request, call)
        if due:
            stage.die(process)
        stage.pause(_FAST)
        return response

    def _send(self, request: httpx.Request, call: Call) -> httpx.Response:
        stage, loom = self._stage, self._stage.loom
        html = drips = False
        try:
            if "watch=" in call.path or "follow=" in call.path:
                response = self._inner.handle_request(request)  # may wait for ever, and may die waiting
            else:
                began = loom.now
                with loom.shielded():
                    response = self._inner.handle_request(request)
                    fault = stage.struck.get(loom.current)
                    if fault is None or fault.kind != "drip":
                        response.read()
                        html = b"<html>" in response.content
                if loom.now - began > (limit := request.extensions["timeout"]["read"]):
                    raise httpx.ReadTimeout(f"no answer within {limit:.0f} s", request=request)
                drips = fault is not None and fault.kind == "drip"
            call.status = response.status_code
        finally:
            if not drips:
                stage.end(call, html=html)
        if drips:
            assert isinstance(response.stream, httpx.SyncByteStream)
            response.stream = _Pieces(stage, call, response.stream)
        return response


class Stage(Rig):
    """``perform`` plays runs; ``broken`` collects what they broke, ``calls`` counts what they sent."""

    def __init__(self, folder: Path, loom: Loom, ground: Ground, limits: Limits) -> None:
        self.loom, self.ground = loom, ground
        tunnels = {"wireguard": {"hub_config": hub.make(folder)}} if ground.may_have_hub() else {}
        scenario = {"machines": [], "lambda": [], "device_plugin": not ground.dra, **copy.deepcopy(ground.scenario), **tunnels}
        super().__init__(folder, speed=QUICKER, **scenario)  # second by second: its time is none of the host's
        if ground.dra:
            dra_driver.install(self.box.cluster.admin())
        self.run_of: dict[Process | None, Run] = {}
        self.orders: dict[str, Order] = {}
        self.struck: dict[t.Any, Fault] = {}
        self.broken: list[str] = []
        self.runs = self.calls = self.kills = self.strikes = 0
        self.on_call: t.Callable[[int], None] = lambda _calls: None
        self._tasks: list[Task] = []
        self.call = self._called
        self.adverse = Adverse(self)
        self.pauses: dict[str, t.Any] = {}  # the record of them, as a person wrote it
        self.meshes: dict[str, dict[str, t.Any]] = {}  # what the class said of each mesh before a line of the story changed it
        self.quick = False  # calls take no time
        self.sent: collections.Counter[str] = collections.Counter()  # create and destroy calls
        self.at_once = 0  # runs that are played beside each other
        self.created_at = self.clock.now()  # of the last create call
        self.plain: dict[str, t.Any] = {}  # what documents said before a line of the story changed them
        self.options: dict[str, t.Any] = {}  # of every module, beside those of the ground
        self.source: sources.Source = sources.Folder(folder)
        self.going: dict[str, str] = {}  # paths of objects that a person deleted, with the name of their document
        self.written: dict[str, t.Any] = {}  # objects of the cluster that are documents, by path
        self.is_twin = False
        self._describe(limits)
        self.box.machines.login_servers |= {one for one in (ground.options.get("mesh_login_server"),) if one}
        self.sight = Sight(self, limits)
        if ground.may_have_hub():
            self.sight.hub = self.box.hub.config
        self.by_hand: t.Callable[[Machine], t.Any] = self.world.power_on  # somebody's hand switches an own machine on
        if ground.options.get("claim_store") == "directory":
            self.sight.files = folder_store.Files(folder / "state-a" / self.sight.cluster_id)
        self.strangers = strangers.settle_in(self, self.sight.cluster_id)
        if ground.has_own():
            own.install(self)
        self.prices = [one.price_hour for one in self.world.offers]
        plain = self.faults.strike

        def strike(service: str, method: str, path: str) -> Fault | None:
            fault = plain(service, method, path)
            if fault is not None:
                self.strikes += 1
                self.struck[loom.current] = fault
            return fault

        self.faults.strike = strike  # type: ignore[method-assign]
        silence.install(self)
        self._uninstall = folder_store.install(self) if self.sight.files is not None else lambda: None

        self._unwatch = looks.install(self)

    def close(self) -> None:
        self._uninstall()
        self._unwatch()
        super().close()

    # ---- around each call

    def begin(self, call: Call, process: Process) -> bool:
        """Just before a call leaves; whether the run dies once its effect is there."""
        order = self.orders[call.run.name]
        call.run.calls += 1
        self.sent.update(what for what, is_so in (("create", call.creates()), ("destroy", call.destroys())) if is_so)
        self.created_at = self.clock.now() if call.creates() else self.created_at
        self.adverse.pass_time()
        self.on_call(call.run.calls)
        if order.playbook == "destroy" and not order.check:
            self.sight.asked |= {one.name for one in self.sight.living()}
        due = order.kill == call.run.calls
        if due and not order.after:
            self.die(process)
        own.follow(self, call)
        self.look(invariants.BEFORE, call)
        self.struck.pop(self.loom.current, None)
        return due

    def end(self, call: Call, *, html: bool = False) -> None:
        """Just after its effect. ``html``: its answer is a page."""
        fault = self.struck.pop(self.loom.current, None)
        call.struck = fault.kind if fault is not None else ""
        if (what := f"{call.service} {call.method} {call.path}") in call.run.struck:
            call.run.repeats = True
        if fault is not None:
            call.run.struck.add(what)
            self.adverse.strike(call.run.name, fault)
        elif call.status in (401, 403) and call.service in RENTED:
            self.adverse.met.setdefault("revoked key", set()).add(call.run.name)
        if call.acts():
            call.run.acted = True
        if "/leases/" in call.path and not self.is_twin:
            self.sight.silences.hear()
        moving.follow(self, call)
        call.run.refused |= call.creates() and not 200 <= call.status < 300
        if self.is_twin and call.destroys():
            self.sight.unbooked |= {
                one.name for one in self.sight.aimed_at(call)
            }  # our ledger knows nothing of what another cluster ends
        if call.method == "GET" and not call.lists() and call.service in (*RENTED, own.CLOUD) and call.struck in _WRONG:
            self.sight.misread |= {one.id for one in self.sight.aimed_at(call)}
        if call.service == own.CLOUD and call.struck == "stale":
            self.sight.outdated |= {one.id for one in self.sight.aimed_at(call) if one.name != own.IN_USE}
        if (kind := self._listed(call)) and call.is_good() and not (call.struck == "body" and html):
            call.run.good.add(kind)
            self.adverse.listed(call)
        elif kind:
            call.run.bad.add(kind)
        self.look(invariants.AFTER, call)

    def _listed(self, call: Call) -> str:
        """Which list it asks for; records that are not in use tell nothing."""
        kind = call.lists()
        if kind in ("claims", "claim objects"):
            return "claims" if self.sight.objects == (kind == "claim objects") else ""
        return kind

    def die(self, process: Process) -> t.NoReturn:
        """The run that is at work is killed."""
        self.kills += 1
        self.loom.kill(process)
        raise Killed(process.name)

    @property  # type: ignore[override]
    def host(self) -> HostClock:
        """The clock of the host that the current run is on."""
        process = self.loom.current.process
        return HostClock(self.clock, self.adverse.skews.get(process.host if process is not None else "a", 0.0))

    @host.setter
    def host(self, _clock: HostClock) -> None:
        """Each host has its own."""

    def _describe(self, limits: Limits) -> None:
        ground = self.ground
        self.demo_class["providers"] = [
            {"name": cloud, "settings": settings, **({"machines": own.entries()} if cloud == own.CLOUD else {})}
            for cloud, settings in ground.providers().items()
        ]
        self.demo_class["limits"] = {
            "maxNodes": limits.nodes, "maxHourlyCost": str(limits.cost_hour), "resources": {"nvidia.com/gpu": limits.gpus},
        }  # fmt: skip
        for key, value in ground.node_class.items():
            self.demo_class.pop(key, None)
            if value is not None:
                self.demo_class[key] = copy.deepcopy(value)
        self.training.clear()
        self.training.update(
            {"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "4.00", **copy.deepcopy(ground.pool)}
        )
        if ground.dra:
            self.training["draDriver"] = dra_driver.DRIVER
        if ground.profile:
            self.training["mig"] = {"profiles": {ground.profile: ground.instances}}
            self.training["template"] = {"metadata": {"labels": {"nvidia.com/mig.config": f"all-{ground.profile}"}}}
        if ground.lane:
            self.training["template"] = {"spec": {"lanes": [ground.lane]}}
        self.documents = [one for one in self.documents if one["metadata"]["name"] in ("demo", "training")]
        for one in list(self.documents) if len(ground.pools) > 1 else ():
            other = copy.deepcopy(one)
            other["metadata"]["name"] = {"demo": "demo-2", "training": "batch"}[one["metadata"]["name"]]
            other["spec"].get("nodeClassRef", {}).update(name="demo-2")
            self.documents.append(other)

    def _transport(self, url: str) -> httpx.BaseTransport | None:
        if url in self.receivers:
            return _Door(self, "second cluster", httpx.WSGITransport(app=self.receivers[url]))
        service = next(name for name, root in URLS.items() if url.startswith(root))
        return _Door(self, service, httpx.WSGITransport(app=self.box.apps[service]))

    def run(self, module: str, run_id: str = "", *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        process = self.loom.current.process
        host = process.host if process is not None else "a"
        purse = self.sight.purse
        option = {"budget": purse.as_option()} if purse is not None and purse.scope == "all" else {}
        if self.box.tailnet.v1_only:  # it has API keys and no OAuth clients
            token = self.world.secrets["TAILSCALE_API_KEY"]
            option |= {"tailscale_oauth_client_id": None, "tailscale_oauth_client_secret": None, "tailscale_api_token": token}
        keys = {option_of(cloud): self.adverse.keys.get(secret_of(cloud)) for cloud in RENTED}
        given = {"state_dir": str(self.folder / f"state-{host}"), **self.source.params()}
        return super().run(
            module, run_id, check=check, **{**keys, **given, **option, **self.ground.options, **self.options, **params}
        )

    def _called(self, code: t.Any, task: Task) -> dict[str, t.Any]:
        self._tasks.append(task)
        return t.cast("dict[str, t.Any]", code.run(task))

    def left(self) -> dict[str, int]:
        """What of ours exists anywhere."""
        found = {**super().left(), "own": 0}  # own machines that are on are among those that live
        foreign = {what for _kind, what in self.sight.foreign_things}
        devices = [one.hostname for one in self.box.tailnet.devices() if one.node_id not in foreign]
        ours = {"devices": devices, "instances": [one.name for one in self.sight.living()]}
        kept = {one.name for one in self.world.machines.values() if own.is_own(one)}  # own machines keep their Node
        ours["nodes"] = [name for name, one in self.nodes().items() if one["metadata"]["uid"] not in foreign and name not in kept]
        theirs = {one.name for one in self.sight.foreign.values() if one.ended is None}  # what has a name in use is kept
        services = [one["metadata"]["name"] for one in self.kube("GET", "/api/v1/namespaces/default/services")["items"]]
        ours["services"] = [name for name in services if name not in theirs]
        ours["peers"] = self.sight.peers()
        found |= {kind: len([name for name in names if self.sight.ours(name)]) for kind, names in ours.items()}
        found["deleted objects"] = len(objects.held(self.sight))
        found["firewall groups"] = self._unused_groups()
        found["disks"] = self._unused_disks()
        found["addresses"] = self._unused_addresses()
        return {kind: number for kind, number in found.items() if number}

    def _unused_groups(self) -> int:
        """Firewall groups of ours that no machine of Vultr has, not even one of somebody else."""
        held = {one.details.get("group") for one in self.world.machines.values() if one.destroyed is None}
        groups = VultrAccount.of(self.world).groups.values()
        return sum(1 for one in groups if self.sight.cluster_id in one.description and one.id not in held)

    def _unused_disks(self) -> int:
        """Disks of ours at Google that no machine has any more."""
        return sum(1 for one in GcpAccount.of(self.world).disks.values() if not one.users and self.sight.ours(one.name))

    def _unused_addresses(self) -> int:
        """Static addresses of ours at Google that nothing has."""
        return sum(1 for one in GcpAccount.of(self.world).addresses if not one.users and self.sight.ours(one.name))

    # ---- records

    def claims(self) -> dict[str, dict[str, t.Any]]:
        if self.sight.objects:
            return objects.claims(self)
        return super().claims() if self.sight.files is None else self.sight.claims()

    def ledger(self) -> list[dict[str, t.Any]]:
        return super().ledger() if self.sight.files is None else self.sight.ledger()

    def remove_record(self, name: str) -> bool:
        """A person removes a claim; whether it was there."""
        if self.sight.files is not None:
            return self.sight.files.remove(name)
        if self.sight.objects:
            return objects.remove_claim(self, name)
        return self.api.request("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")[0] < 300

    def make_immutable(self, name: str) -> None:
        """As for a ConfigMap: a file, or an object, that no run may replace or remove."""
        if self.sight.objects:
            self.fault("status", "kubernetes", "PATCH", f"/gpunodeclaims/{name}$", status=422, times=None)
            return None
        if self.sight.files is None:
            return super().make_immutable(name)
        self.fault("status", folder_store.SERVICE, "", f"/claims/{name}$", status=422, times=None)

    def damage(self, name: str, text: str | None = None) -> str:
        if self.sight.objects:
            self.kube("PATCH", f"{objects.CLAIMS}/{name}", {"record": {"name": None, "offer": None}})
            return ""
        if self.sight.files is None:
            return super().damage(name, text)
        return self.sight.files.damage(name)

    # ---- playing

    def perform(self, *orders: Order) -> list[Outcome]:
        """Runs of playbooks, all begun at this moment, each to its end."""
        self.source.write(self, self.documents)
        outcomes, work = {}, {}
        self.at_once = len(orders)
        for order in orders:
            self.runs += 1
            run = Run(f"run-{self.runs}", order.playbook, reads=order.check or order.playbook == "plan")
            process = Process(run.name, order.host)
            self.run_of[process], self.orders[run.name] = run, order
            outcomes[process] = Outcome(run, order, "ok", {})
            work[process] = self._playbook(order, run, outcomes[process])
        ends = self.loom.play(work)
        self._bury()
        for process, error in ends.items():
            self.calls += outcomes[process].run.calls
            if isinstance(error, TgpError):
                outcomes[process].end, outcomes[process].error = error.kind, str(error).replace(str(self.folder), "")
            elif isinstance(error, Killed):
                outcomes[process].end = "killed"
            elif error is not None:
                raise error
        said = "\n".join([*self.lines, *self.warnings])
        for one in outcomes.values():
            self.adverse.judge(one, f"{said} {one.said} {one.error}")
        self._keep_secrets(outcomes.values())
        return list(outcomes.values())

    def _bury(self) -> None:
        """A process that is over has no file open, even where one of its threads wrote a last line when the call had ended."""
        for task in self._tasks:
            if task.events is not None:
                task.events.close()
        self._tasks.clear()

    def _playbook(self, order: Order, run: Run, outcome: Outcome) -> t.Callable[[], None]:
        """What playbooks/<name>.yml does, module by module; on host t by the controller of the second cluster, where there is one."""
        if order.host == "t" and not self.is_twin:
            return t.cast(Stage, self.twins[-1])._playbook(order, run, outcome) if self.twins else lambda: None

        def play() -> None:
            said, file = outcome.said, str(self.folder / "plan.json")
            if order.playbook == "loop":
                return looks.play(self, order, outcome)
            if order.playbook in moving.PLAYBOOKS:
                return moving.run(self, order, run.name, said)
            began = self.clock.now()
            alone = order.playbook == "autoscale" and not order.check and not self.is_twin and self.at_once == 1
            before = workloads.Before.of(self.sight) if alone else None
            if order.playbook == "apply":
                if not Path(file).exists():
                    return
                plan = said["plan"] = self.run("apply", run.name, check=order.check, file=file)
            else:
                several = len(self.ground.pools) > 1 or self.has_later()
                nodes: t.Any = {order.pool: order.nodes} if several else order.nodes
                settings: dict[str, dict[str, t.Any]] = {
                    "provision": {"nodes": nodes, "pools": [order.pool] if several else []},
                    "destroy": {"all": True, "force": True},
                    "plan": {"mode": "everything", "nodes": nodes if order.nodes else None, "save_to": file},
                    "everything": {"nodes": nodes},
                    "migrate": {"mode": "autoscale", "migrate": True, "on_lock_busy": "fail"},
                }
                params = settings.get(order.playbook, {})
                plan = said["plan"] = self.run("plan", run.name, check=order.check, **{"mode": order.playbook, **params})
            if order.check or order.playbook == "plan":
                return
            try:
                if plan["outcome"] != "lock_busy":
                    self._act(order, run, plan, said)
                else:
                    telling.tell(self, run, order, said)
                self._judge(run, order, said)
                if self.at_once == 1 and not self.is_twin:
                    late = silence.I38_the_next_run_deletes_it(self.sight, outcome, order, began)
                    self.broken += [f"I-38: {late} [{run.name} ({run.mode})]"] if late else []
                if before is not None and (problem := workloads.I34_what_is_rented_for_pods_is_of_use(self.sight, run, before)):
                    self.broken.append(f"I-34: {problem} [{run.name} ({run.mode})]")
            finally:
                self.run("unlock", run.name)

        return play

    def _judge(self, run: Run, order: Order, said: dict[str, t.Any]) -> None:
        problem = exits.I23_success_is_true(self.sight, run, order, said) if switches.on("I-23") and not self.is_twin else ""
        if problem:
            self.broken.append(f"I-23: exit status 0, but {problem} [{run.name} ({run.mode})]")

    def _act(self, order: Order, run: Run, plan: dict[str, t.Any], said: dict[str, t.Any]) -> None:
        def step(name: str, **params: t.Any) -> None:
            said[name] = self.run(name, plan["run_id"], **params)

        launch, destroy, orphans = plan["launch"], plan["destroy"], plan["orphans"]

        def hubs() -> None:
            telling.tell(self, run, order, said)

        match order.playbook:
            case "provision":
                if destroy:
                    step("teardown", names=destroy, orphans=orphans)
                step("launch", names=launch, only_named=True, join=True, wanted=plan.get("wanted") or {})
                hubs()
                if unjoined := said["launch"].get("unjoined"):
                    step("join", names=unjoined)
            case "autoscale":
                if launch or destroy or orphans:
                    step("scale", names=launch + destroy, orphans=orphans)
                hubs()
                if plan["join"]:
                    step("join", names=plan["join"])
            case "migrate":
                if launch or destroy or orphans or order.wait:
                    step("scale", names=launch + destroy, only_named=True, join=order.wait, orphans=orphans)
                hubs()
                names = said.get("scale", {}).get("unjoined", []) if order.wait else plan["join"]
                if names:
                    step("join", names=names, wait=order.wait and not (said.get("hub") or {}).get("problems"))
            case "apply":
                if launch:
                    step("launch", names=launch)
                if destroy or orphans:
                    step("teardown", names=destroy, only_named=True, orphans=orphans)
                hubs()
                if plan["join"]:
                    step("join", names=plan["join"])
            case _:
                step("teardown", orphans=orphans)
                hubs()

    def extras(self) -> Decimal:
        """What accounts were billed besides machines."""
        return paperspace_extras(self.world, self.clock.now())[0]

    def change_document(self, what: str, name: str) -> None:
        """A document vanishes, comes again, or breaks; without a name the whole source is ``empty``, ``missing``, or there again."""
        if not name:
            self.source.whole = "" if what == "return" else what
        elif what == "return":
            self.source.bring_back(self, name)
        elif what == "delete":
            self.source.delete(self, name)
        elif what in self.source.broken and self.source.states.get(name) in ("gone", "deleted"):
            return  # nobody breaks what is not there: a lone pool would use a class that is being deleted
        else:
            self.source.states[name] = {"vanish": "gone"}.get(what, what)
        self.see_documents()

    def see_documents(self) -> None:
        """What a run that reads the source finds from now on."""
        source, documents = self.source, self.documents
        self.sight.see_documents(source.gone(documents), source.unreadable(documents), all_=bool(source.whole))

    def add_document(self, kind: str) -> None:
        """A document that was not there before: a GPURequest, or a second (third) GPUNodePool with a class of its own, each called ``later``.
        The pool wants a machine."""
        if self.has_later():
            return self.change_document("return", sources.LATER)
        self.documents += sources.request(self) if kind == "request" else sources.pool(self)
        self.change_document("return", sources.LATER)

    def has_later(self) -> bool:
        """Whether a document has appeared, be it gone again or not."""
        return any(one["metadata"]["name"] == sources.LATER for one in self.documents)

    def restore_documents(self) -> None:
        """Every document of the beginning is there again, and says what it said then; what appeared is gone for good."""
        self.sight.note_documents()
        self.documents = [one for one in self.documents if sources.LATER not in one["metadata"]["name"]]
        for name in list(self.source.states):
            self.change_document("return", name)
        for key in ("orphanedPolicy", "acceptance", agents.FIELD, *queues.FIELDS):
            self.training.pop(key, None)
        for key in ("expireAfter", "gpuLossPolicy"):
            (self.training.get("disruption") or {}).pop(key, None)
        silence.restore(self)

    def show_gpus(self, name: str, number: int) -> None:
        """The node has so many GPUs from now on."""
        if self.ground.dra:
            offer = next(one.offer for one in self.sight.by_name(name))
            dra_driver.withdraw(self.box.cluster.admin(), name)
            return dra_driver.publish(self.box.cluster.admin(), name, number, offer.model, offer.memory_mib)
        shown = (self.kube("GET", f"/api/v1/nodes/{name}")["status"].get("capacity") or {}).keys()
        amount = {self.ground.resource if self.ground.resource in shown else "nvidia.com/gpu": str(number)}
        self.kube("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": amount, "allocatable": amount}})

    def look(self, checks: t.Mapping[str, invariants.Check], call: Call) -> None:
        if self.is_twin:
            checks = invariants.SECOND if checks is invariants.BEFORE else invariants.SECOND_AFTER
        self.broken += invariants.problems(checks, self.sight, call)

    def _keep_secrets(self, outcomes: t.Iterable[Outcome]) -> None:
        """I-12 for what people and files are shown."""
        shown = "\n".join([*self.lines, *self.warnings, *(f"{one.said} {one.error}" for one in outcomes)])
        files = "\n".join(path.read_text() for path in sorted(self.folder.glob("state-*/**/*.jsonl")))
        told = [one for one in self.sight.secrets() if one in shown or one in files]
        if told:
            self.broken.append(f"I-12: a secret is shown: {told[0][:12]}…")
        self.lines.clear()
        self.warnings.clear()

    # ---- the world moves

    def pause(self, most: float) -> None:
        """On the way to a service or back."""
        seconds = self.loom.dice.uniform(0.001, most)
        self.loom.sleep(0.0 if self.quick else seconds)

    def lease(self) -> dict[str, t.Any]:
        """The run lock of the whole cluster."""
        found = self.kube("GET", f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{self.cluster_id}")
        return t.cast("dict[str, t.Any]", found)

    def rest(self, seconds: float) -> None:
        self.loom.sleep(seconds)

    def found(self, *, restored: bool) -> None:
        """From now on there is a second cluster with the same id: an empty one, or one restored from a backup of this one as it is now. Its
        runs (``host=t``) read the same documents, and use the same accounts and the same mesh."""
        self.sight.copied = copy.deepcopy(self.sight.claims()) if restored else None
        other = t.cast(Stage, self.twin(restored=restored))
        other.is_twin, other.lines, other.warnings = True, self.lines, self.warnings
        other.written = copy.deepcopy(self.written) if restored else {}
        for path in self.going if restored else ():
            sources.let_go(other, path)
        if self.sight.objects and not restored:
            other.kube("POST", objects.DEFINITIONS, claim_definition())
        if restored and self.sight.files is not None:
            self.sight.files.copy_to(other.folder / "state-t" / self.sight.cluster_id)

    def give(self, purse: Purse) -> None:
        """From now on there is this budget, and no other."""
        self.sight.purse = purse
        for scope, spec in (("pool", self.training), ("class", self.demo_class)):
            spec.pop("budget", None)
            if purse.scope == scope:
                spec["budget"] = purse.as_document()

    def well_again(self) -> None:
        """Nothing fails any more, nobody wants anything, and there is enough of everything."""
        self.faults.clear()
        self.adverse.restore()
        own.put_away(self)
        edges.restore(self)
        pauses.end(self)
        images.mend(self)
        queues.end(self)
        self.change_document("return", "")
        for name in [one for one, state in self.source.states.items() if state not in ("gone", "deleted")]:
            self.change_document("return", name)
        if self.has_later() and self.source.states.get(sources.LATER) != "deleted":
            self.change_document("vanish", sources.LATER)
        self.box.machines.behaviours = Behaviours()
        for place, dollars in enumerate(self.prices):
            self.price(place, dollars / self.world.offers[place].price_hour)
            self.world.offers[place].stock = max(self.world.offers[place].stock, 4)
        for kind, items in (
            ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", None),
            ("/api/v1/namespaces/default/pods", 0),
        ):
            for one in self.kube("GET", kind)["items"]:
                body = None if items is None else {"gracePeriodSeconds": 0}
                self.api.request("DELETE", f"{kind}/{one['metadata']['name']}", body)
        self.sight.guarded.clear()
        self.training.pop("minNodes", None)
        for name, node in self.nodes().items():
            if "tgp.io/do-not-disrupt" in (node["metadata"].get("annotations") or {}):
                self.kube("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"tgp.io/do-not-disrupt": None}}})
        for one in self.kube("GET", "/api/v1/namespaces/kube-system/pods")["items"]:
            if one["metadata"]["name"].startswith(("job-", "ask-")):
                self.api.request(
                    "DELETE", f"/api/v1/namespaces/kube-system/pods/{one['metadata']['name']}", {"gracePeriodSeconds": 0}
                )

    def end_by_hand(self, name: str) -> None:
        """Somebody ends a machine at the cloud's own page. The Node that they made of an adopted one, and that never got a label of ours, is
        theirs to remove."""
        for one in self.sight.living():
            if one.name == name:
                node = self.nodes().get(name)
                if node and one.id in self.sight.moved.into and "tgp.io/instance-id" not in node["metadata"].get("labels", {}):
                    self.sight.foreign_things.add(("Node", node["metadata"]["uid"]))
                self.sight.by_hand.add(one.id)
                self.world.release(one)
                one.destroyed = one.ended
                one.state = "terminated"

    def price(self, number: int, factor: Decimal) -> None:
        """An offer costs something else from now on; who rented it before pays as before."""
        offers = self.world.offers
        place = number % len(offers)
        old = offers[place]
        if old.cloud in ("gcp", "paperspace", "vultr"):
            return  # of two the prices are a table, of the other every machine costs what its plan costs now
        self.sight.former.append((self.clock.now(), (old.cloud, old.type, old.region), old.price_hour))
        new = max(Decimal("0.01"), (old.price_hour * factor).quantize(Decimal("0.01")))
        shown = {"shown_price": new} if "shown_price" in old.details else {}
        offers[place] = dataclasses.replace(old, price_hour=new, details={**old.details, **shown})
