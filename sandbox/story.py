# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine does what a real one would do with what it was given, step by step. Its story is in ``steps``, what it prints in ``console``.

Steps: boot, up, config, [the bootstrap program's own], mesh, csr, node, labels, ready, gpu, done. A step that goes wrong is the last one;
its text is what the machine's log would say. On the console of an Ubuntu machine the bootstrap program tells of its own steps and of its
failure, when its text does so; what the kubelet says goes to the journal. Talos prints what its services say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import math
import typing as t

from . import device_plugin, guard, kubelet, payload, payload_reader
from .bootstrap_words import ONCE, BootstrapWords
from .cluster import Client, Cluster, KubeError
from .hub import KEEPALIVE, Tunnel
from .life import MESH_TIMEOUT, Over
from .obstacles import Obstacles
from .payload import Intent, Refused
from .tailnet import JoinRefused

STARTS = 3  # how often systemd starts the bootstrap program
HANDSHAKE = 180.0  # seconds that it waits for one
UNANSWERED = "no client certificate: nobody approved the request"
NO_CERTIFICATE = "no client certificate: token expired, nobody approved the request, or the kubelet does not start"
UNKNOWN_TOKEN = "the API server does not know the bootstrap token: expired, deleted, or of another cluster"


class Story(Obstacles):
    """One power-on. ``_program`` is what its bootstrap program says; None before it is started, and for Talos."""

    _program: BootstrapWords | None = None

    def tell(self) -> None:
        """From power-on to a working node, or to where it stops."""
        machine = self._machine
        with self._world.lock:
            machine.console.clear()
            machine.steps.clear()
        self._note("boot", f"{machine.offer.type}, {machine.offer.gpu_count} GPUs")
        try:
            if self._boot():
                self._become_node()
        except Refused as refusal:
            if refusal.program:
                self._program = BootstrapWords(refusal.program)
            self._fail(refusal.step, str(refusal))
            self._note(refusal.step, str(refusal), failed=True)
        except KubeError as error:
            self._log(f"kubelet: {error}")
            self._note("node", f"kubelet: {error}", failed=True)
        if self._doom < math.inf:
            self._pause(max(0.0, self._doom - self._due), stretched=False)

    # ---- steps

    def _boot(self) -> bool:
        machine, own = self._machine, self._machine.cloud == "webhook"
        if "never_boots" in self._parts:
            self._pause(10 * 365 * 86400.0, stretched=False)
        self._pause(machine.offer.boot_seconds)
        broken = "boot_error" in self._parts
        with self._world.lock:
            if not self._lives():  # ended or stopped in the very moment it came up
                raise Over
            if own:
                machine.state = "off" if broken else "on"
                machine.ended = self._world.clock.now() if broken else None
            else:
                machine.state = "unhealthy" if broken else "active"
            addresses = machine.details.get("addresses")
            if addresses and machine.ip is None:
                machine.ip, machine.private_ip = addresses
        text = "the disk cannot be mounted" if broken else f"{self._system} is up"
        self._print(text)
        self._note("up", text, failed=broken)
        return not broken

    # ---- what it prints

    def _reach(self, step: str) -> None:
        """The bootstrap program comes to this step."""
        if self._program is not None:
            self._print(*self._program.reach(step))

    def _fail(self, step: str, why: str) -> None:
        """The bootstrap program ends in this step; without it the system says why."""
        if self._program is None:
            self._print(why)
        elif step != "csr":
            self._print(*self._program.fail(step, why))
        elif "Unauthorized" in why and self._program.at != "kubelet":
            self._print(*self._program.fail("api", UNKNOWN_TOKEN))
        else:
            self._print(*self._program.fail("kubelet", why if why == UNANSWERED else f"{NO_CERTIFICATE}: {why}"))

    def _log(self, text: str) -> None:
        """A line of a service's log, which Talos prints and Ubuntu does not."""
        if self._program is None:
            self._print(text)

    # ---- steps

    def _become_node(self) -> None:
        """The machine's own part: what it was given decides."""
        machine, state = self._machine, self._machine.details
        given = machine.payload or state.get("payload")  # what it became earlier is on its disk
        if given:
            intent = payload_reader.read(given, self._system, machine.details.get("environment"))
        elif state.get("installed") and self._all.installed is not None:
            intent = self._all.installed(machine)
        else:
            intent = None
        if intent is None:
            talos = self._system == payload.TALOS
            self._note("config", "no machine config: maintenance mode" if talos else "no user data: a plain Ubuntu")
            return
        if not intent.node_name:  # Talos makes one up
            digest = hashlib.sha256(machine.id.encode()).hexdigest()
            intent = dataclasses.replace(intent, node_name=f"talos-{digest[:3]}-{digest[3:6]}")
        self._note("config", f"{intent.lane}: node {intent.node_name}")
        known = state.get("payload") == given and state.get("node") == intent.node_name
        if not known:  # a new configuration: whatever it was before is wiped
            for key in ("device", "certificate"):
                state.pop(key, None)
            state.update(payload=given, node=intent.node_name)
        if intent.lane == "kubelet":  # a node prints nothing when it comes back
            skips = {*(ONCE if known else ()), *(("driver",) if intent.gpus_wanted is None else ())}
            self._program = BootstrapWords("" if "certificate" in state else intent.program, skips)
        self._disk(intent)
        intent = self._bent(intent)
        self._image(intent)
        if intent.lane == "kubelet" and not known:
            self._packages(intent)
        address = self._mesh(intent)
        self._trustd(intent)
        self._kubernetes(intent, address)

    def _image(self, intent: Intent) -> None:
        """The ordered image exists and has the extensions the configuration speaks of."""
        if intent.lane != "talos" or self._all.schematics is None or not intent.installer:
            return
        extensions = self._all.schematics(intent.schematic) if intent.schematic else ()
        if extensions is None:
            raise Refused("install", f"failed to pull installer image {intent.installer}: 404 Not Found")
        if intent.mesh is not None and "siderolabs/tailscale" not in extensions:
            raise Refused("mesh", "the image has no extension siderolabs/tailscale: service ext-tailscale does not exist")

    def _packages(self, intent: Intent) -> None:
        """The bootstrap program's own steps up to the mesh; most of the time goes into packages."""
        before = [step for step in intent.steps if step not in ("mesh", "api", "containerd", "kubelet", "erase", "done")]
        for step in before or ["packages"]:
            if step == "driver" and intent.gpus_wanted is not None and intent.gpus_wanted != self._machine.offer.gpu_count:
                raise Refused(step, f"{self._machine.offer.gpu_count} GPUs found, {intent.gpus_wanted} ordered")
            self._reach(step)
            self._note(step, "")
            if step == "packages":
                self._pause(self._seconds("packages"))

    def _mesh(self, intent: Intent) -> str:
        """Enter the tailnet, or get through to the hub; the address the kubelet will register."""
        if intent.tunnel is not None:
            return self._through(intent, intent.tunnel)
        self._reach("mesh")
        if intent.mesh is None:
            return self._address(intent, "")
        self._pause(self._seconds("mesh"))
        if "mesh_fails" in self._parts:
            raise Refused("mesh", f"tailscale up: {MESH_TIMEOUT}")
        self._clock_of_the_mesh()
        device = self._machine.details.get("device")
        if not device or not self._all.tailnet.set_online(device, True):
            try:
                with self._world.lock:  # what has ended enters no tailnet, however late its thread has its turn
                    if not self._lives():
                        raise Over
                    device = self._machine.details["device"] = self._join(intent.mesh).node_id
            except JoinRefused as refusal:
                raise Refused("mesh", f"tailscale up: {refusal}") from refusal
        if not self._lives():  # gone in the very moment it came
            self._all.tailnet.set_online(device, False)
            raise Over
        found = self._all.tailnet.device(device)
        if found is None:
            raise Refused("mesh", "the device was removed from the tailnet")
        self._note("mesh", f"{found.ipv4} as {found.label}")
        return self._address(intent, found.ipv4)

    def _through(self, intent: Intent, tunnel: Tunnel) -> str:
        """WireGuard says nothing and tries again. The bootstrap program waits for so long and is started twice more; Talos waits on."""
        self._reach("mesh")
        self._pause(self._seconds("mesh"))
        began, tries, said = self._world.clock.seconds(), 1, ""
        patience = HANDSHAKE if intent.lane == "kubelet" else 10 * 365 * 86400.0
        while why := "its UDP is dropped" if "mesh_fails" in self._parts else self._all.hub.refusal(tunnel):
            words = f"no handshake with the hub at port {tunnel.port}: {why} ({tunnel.public_key})"
            waited = self._world.clock.seconds() - began
            if waited >= patience * STARTS:
                raise Refused("mesh", words)
            over = waited >= patience * tries
            if over or why != said:
                tries += over
                said = why
                self._note("mesh", words)
            if over and self._program is not None:
                self._fail("mesh", words)
                self._reach("mesh")
            self._due = self._world.clock.seconds()
            self._pause(max(KEEPALIVE, 0.1 * self._world.clock.speed), stretched=False)
        self._note("mesh", f"{tunnel.address} behind the hub, by {tunnel.interface}")
        hidden = _within(tunnel.address, tunnel.hidden)
        return self._address(intent, "" if hidden else tunnel.address)

    def _address(self, intent: Intent, mesh: str) -> str:
        """The node's address: the first that its subnets allow; without any, that of the mesh."""
        own = self._machine.private_ip or ""
        candidates = [address for address in (mesh, own) if address]
        wanted = [subnet for subnet in intent.node_subnets if not subnet.startswith("!")]
        refused = [subnet[1:] for subnet in intent.node_subnets if subnet.startswith("!")]
        for address in candidates:
            if (not wanted or _within(address, wanted)) and not _within(address, refused):
                return address
        raise Refused("node", "kubelet: no suitable node IP found")

    def _trustd(self, intent: Intent) -> None:
        """The Talos API's certificate. Without it the node joins all the same, and nobody can talk to it."""
        if intent.trustd is None or self._all.trustd is None:
            return
        token, ca = intent.trustd
        ours = self._all.trustd
        self._machine.details["apid"] = False
        refusal = self._way_to_trustd(intent)
        if not refusal and ca.split() != ours[1].split():
            refusal = "x509: certificate signed by unknown authority"
        if not refusal and token != ours[0]:
            refusal = "rpc error: code = Unauthenticated desc = invalid token"
        if refusal:
            self._note("apid", f"failed to sign API server CSR: {refusal}")
            self._log(f"failed to sign API server CSR: {refusal}")
        else:
            self._machine.details["apid"] = True

    def _kubernetes(self, intent: Intent, address: str) -> None:
        cluster, kubelets, state = self._all.cluster, self._all.kubelets, self._machine.details
        if cluster is None or kubelets is None:
            raise Refused("csr", "there is no Kubernetes in this world")
        self._reach("api")
        self._way_to_the_api(intent)
        self._own_label(intent)
        if "certificate" not in state:
            state["certificate"] = self._certificate(cluster, intent)
        self._reach("done")
        client = cluster.connect(intent.server, intent.ca_pem, certificate=state["certificate"])
        try:
            uid = kubelet.register(client, intent, address, self._machine.id, self._world.clock.now())
            if not self._lives():
                raise Over
            kubelets.adopt(intent.node_name, uid, address, self._parts)
            if not self._lives():  # ended between the two: silence() may have come too early
                kubelets.silence(intent.node_name)
                raise Over
            self._note("node", f"{intent.node_name} registered with {address}")
            if not self._starts(cluster, intent):
                text = f"kubelet {intent.kubelet_version}: the server does not know the requested resource"
                self._log(text)
                self._note("ready", text, failed=True)
                return
            if not intent.labels_at_registration:
                self._late_labels(client, intent)
            self._workload(client, intent)
            self._keep_watch(client, intent)
        finally:
            client.close()

    def _keep_watch(self, client: Client, intent: Intent) -> None:
        """The guard's timer, until the machine ends. A clock that is moved fires it as often as it would have fired meanwhile."""
        machine, cut = self._machine, self._parts.get("cut_off")
        watch = guard.Watch(intent.guard) if intent.guard is not None else None
        if watch is None and cut is None:
            return
        away = machine.began + cut.seconds if cut is not None and machine.began is not None else math.inf
        while True:
            self._pause(min(guard.EVERY, max(away - self._due, 0.0)) if watch is None else guard.EVERY, stretched=False)
            gone = self._due >= away
            if gone and self._all.kubelets is not None:
                self._all.kubelets.silence(intent.node_name)
            if watch is None:
                return
            why = watch.check(client, away=gone)
            if why == "controller":
                guard.cordon(client, intent.node_name)
            with self._world.lock:
                machine.details["guard_checks"] = machine.details.get("guard_checks", 0) + 1
            if why:
                self._note("guard", f"powers off: nothing from the {why}")
                self._all.shut_down(machine)
                raise Over

    def _certificate(self, cluster: Cluster, intent: Intent) -> tuple[str, str]:
        """Bootstrap: ask, wait for the approval, take the certificate. A kubelet asks on and on; the bootstrap program waits for so long,
        says what is missing, and is started again twice."""
        request, key = kubelet.new_key(intent.node_name)
        client = cluster.connect(intent.server, intent.ca_pem, token=intent.token)
        name, pause, problem = "", 1.0, ""
        patience = (intent.csr_seconds if intent.lane == "kubelet" else 3600.0) * self._factor
        began, tries = self._world.clock.seconds(), 1
        try:
            self._pause(self._seconds("csr"))
            while (waited := self._world.clock.seconds() - began) < patience * STARTS:
                if waited >= patience * tries:
                    tries += 1
                    self._note("csr", problem or UNANSWERED)
                    self._give_up(problem or UNANSWERED)
                try:
                    if not name:
                        name = kubelet.request_certificate(client, request)
                        self._note("csr", name)
                        self._reach("kubelet")
                    if pem := kubelet.certificate(client, name):
                        return pem, key
                    pause, said = min(pause * 1.2, 15.0), ""
                except KubeError as error:
                    pause, said = min(pause * 2, 60.0), f"kubelet: cannot create certificate signing request: {error}"
                    if error.status == 404:
                        name = ""
                except kubelet.Denied as denial:
                    pause, said, name = 60.0, f"kubelet: {denial}", ""
                if said and said != problem:
                    problem = said
                    self._note("csr", said)
                    self._log(said)
                    if "Unauthorized" in said and not name:  # the program asks before the kubelet does
                        self._give_up(said)
                self._due = self._world.clock.seconds()
                self._pause(max(pause, 0.1 * self._world.clock.speed), stretched=False)
        finally:
            client.close()
        raise Refused("csr", problem or UNANSWERED)

    def _give_up(self, why: str) -> None:
        """The bootstrap program ends, and systemd starts it again."""
        if self._program is not None:
            unknown = "Unauthorized" in why and self._program.at != "kubelet"
            self._fail("csr", why)
            self._reach("api" if unknown else "kubelet")

    def _late_labels(self, client: Client, intent: Intent) -> None:
        try:
            kubelet.late_labels(client, intent)
        except KubeError as error:
            self._note("labels", f"NodeApplyController: {error}")
            self._log(f"NodeApplyController: {error}")
        else:
            self._note("labels", f"{len(intent.labels)} labels")

    def _workload(self, client: Client, intent: Intent) -> None:
        """Network, then the device plugin."""
        self._pause(self._seconds("ready"))
        if "never_ready" in self._parts:
            self._note("ready", "cni plugin not initialized", failed=True)
            self._log("cni plugin not initialized")
            return
        kubelet.ready(client, intent.node_name, self._world.clock.now())
        self._note("ready", "")
        self._pause(self._seconds("gpu"))
        gpus = self._parts["gpu_missing"].gpus if "gpu_missing" in self._parts else self._machine.offer.gpu_count
        if self._machine.offer.gpu_count:
            sharing = self._device_plugin(intent, gpus)
            if sharing is not None:
                offer = self._machine.offer
                account = (
                    t.cast(Cluster, self._all.cluster).admin() if sharing.dra else client
                )  # a DRA driver has an account of its own
                kubelet.offer_gpus(account, intent.node_name, gpus, sharing, model=offer.model, memory_mib=offer.memory_mib)
                self._note("gpu", f"{kubelet.GPU}: {gpus * sharing.replicas}")
        self._note("done", "")

    def _device_plugin(self, intent: Intent, gpus: int) -> device_plugin.Sharing | None:
        """How the device plugin of the Node shares its GPUs. Until one runs there it shows none; a kubelet waits for it for ever. None when the
        Node is gone."""
        cluster, kubelets, said = t.cast(Cluster, self._all.cluster), self._all.kubelets, False
        while True:
            if (
                kubelets is not None
                and (sharing := kubelets.equip(intent.node_name, gpus, self._machine.offer.model, self._machine.offer.memory_mib))
                is not None
            ):
                return sharing
            try:
                if device_plugin.runs_on(cluster.admin(), intent.node_name):
                    return device_plugin.Sharing(mixed=True)  # as its manifest says
            except KubeError as error:
                if error.status == 404:  # the Node was deleted; what is not a node shows nothing
                    return None
            if not said:
                self._note("gpu", "no DaemonSet of a device plugin selects this node and tolerates its taints", failed=True)
                said = True
            self._due = self._world.clock.seconds()
            self._pause(max(5.0, 0.1 * self._world.clock.speed), stretched=False)


def _within(address: str, subnets: t.Sequence[str]) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(subnet, strict=False) for subnet in subnets)
