# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks everybody once more about a machine that is going to be given up, before it is destroyed (S1-46): what is found makes the
diagnosis, is printed, and stays in a file. Whatever cannot be asked is named; nothing here ends a run."""

from __future__ import annotations

import dataclasses
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from ...core.errors import LockLost, TgpError
from ...core.redact import redact, redact_foreign
from ...kube import bootstrap_tokens, csr
from ...model import Claim, Device, Lane, Node
from ...observe.context import Context
from ...planner.claims.record import mesh_tags
from ...planner.cost.cost import claim_cost
from ...planner.provisioning import limits
from ...planner.provisioning.registration import is_stale
from ...planner.scheduling import capacity
from ...providers.registry import CAPABILITIES
from ...talos.images.nvidia import ordered_schematic
from ...talos.spec import DEFAULT_TALOS
from ..facts import Findings, JoinRequest
from ..rules import Diagnosis, diagnose
from ..view import screen, steps_of
from .files import save
from .node import events_of, node_and_conditions, refused, requests_of, system_pods_in_trouble, token_exists
from .talos_node import reader_of, services_of

_WORKERS = 16
_ODD = (TgpError, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)  # answers that nobody foresaw
_LINES, _LONGEST = 200, 400  # of a console: lines kept, characters of each
_ASKING = 5.0  # seconds in which a machine's Talos API is asked; it costs money meanwhile
_T = t.TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class JoinEnd:
    """How the wait for a machine ended. ``seen`` is when each step was first seen; ``hopeless`` why it ended before its time; ``test_log`` the
    end of the log of an acceptance test that failed, None when none has; ``untested`` why one gave no result."""

    step: str
    message: str
    seen: t.Mapping[str, datetime]
    hopeless: str = ""
    test_log: tuple[str, ...] | None = None
    untested: str = ""


@dataclasses.dataclass(frozen=True)
class Explained:
    """``file`` is the evidence file, empty when it could not be written; ``lines`` are one screen for people."""

    diagnosis: Diagnosis
    lines: list[str]
    file: str = ""

    @property
    def cause(self) -> str:
        """In one sentence, with its code."""
        return f"{self.diagnosis.cause} [{self.diagnosis.code}]"

    @property
    def booked(self) -> str:
        """Cause and place of the evidence, for records."""
        return f"{self.cause} Evidence: {self.file}" if self.file else self.cause

    @property
    def result(self) -> dict[str, t.Any]:
        """JSON-safe, for the result of a module."""
        content = dataclasses.asdict(self.diagnosis)
        return {**content, "evidence": list(content["evidence"]), "looked_at": list(content["looked_at"]), "file": self.file}


def explain_all(
    context: Context, ends: t.Mapping[str, tuple[Claim, JoinEnd]], devices: t.Callable[[], t.Sequence[Device] | None]
) -> dict[str, Explained]:
    """A diagnosis for each machine, side by side; none for one where that failed, which is warned of.

    ``devices`` gives the mesh's list as last read, None when it never could be.
    """
    if not ends:
        return {}
    work = _Collector(context, devices)
    with ThreadPoolExecutor(min(_WORKERS, len(ends)), thread_name_prefix="evidence") as pool:
        explanations = pool.map(lambda pair: work.explain_if_possible(*pair), ends.values())
        return {name: explained for name, explained in zip(ends, explanations, strict=True) if explained is not None}


class _Collector:
    def __init__(self, context: Context, devices: t.Callable[[], t.Sequence[Device] | None]) -> None:
        self._context, self._devices = context, devices
        self._started = context.clock.now()
        self._talos_silent = threading.Event()

    def explain_if_possible(self, claim: Claim, end: JoinEnd) -> Explained | None:
        try:
            return self.explain(claim, end)
        except LockLost:
            raise
        except _ODD as error:  # the machine has to be terminated all the same: it costs money until then
            self._context.warn(f"{claim.name}: why it failed could not be found out: {type(error).__name__}: {error}")
            return None

    def explain(self, claim: Claim, end: JoinEnd) -> Explained:
        context = self._context
        findings = self.findings(claim, end)
        diagnosis = diagnose(findings)
        facts = CAPABILITIES[claim.cloud]
        lost = claim_cost(
            claim, findings.now, facts.billing_granularity, bills_boot=facts.bills_boot, minimum=facts.billing_minimum
        )
        lines = screen(
            claim.name,
            diagnosis,
            dict(findings.steps),
            expected=steps_of(findings.lane, mesh=findings.uses_mesh),
            launched=findings.launched,
            now=findings.now,
            lost=f"${lost:.4f} lost",
        )
        file = save(context.task, claim, findings, diagnosis, lines)
        if file:
            lines.append(f"  {'all of it':<9} {file}")
        return Explained(diagnosis, lines, file)

    def findings(self, claim: Claim, end: JoinEnd) -> Findings:
        """Everything that can be known of the machine now. What could not be asked stands in ``unread``."""
        unread: dict[str, str] = {}

        def ask(source: str, question: t.Callable[[], _T], otherwise: _T) -> tuple[_T, bool]:
            try:
                return question(), True
            except TgpError as error:
                unread[source] = f"could not be read: {str(error)[:200]}"
                return otherwise, False

        facts = self._machine(claim, ask)
        facts |= self._mesh(claim, ask)
        if claim.lane is not Lane.SERVICE:
            facts |= self._cluster(claim, ask)
        if claim.lane is Lane.TALOS and self._context.task.params.get("talosconfig"):
            facts |= self._talos(claim, facts, unread)
        return Findings(
            name=claim.node_name or claim.name,
            now=self._context.clock.now(),
            cloud=claim.cloud,
            lane=claim.lane,
            launched=claim.launch_started,
            steps=tuple(sorted(_times(claim, end, facts.get("requests", ())).items(), key=lambda pair: pair[1])),
            step=end.step,
            message=redact(end.message),
            hopeless=redact(end.hopeless),
            test_log=end.test_log,
            untested=redact(end.untested),
            instance_id=claim.instance_id,
            unread=tuple(sorted(unread.items())),
            **facts,
        )

    def _machine(self, claim: Claim, ask: t.Callable[..., tuple[t.Any, bool]]) -> dict[str, t.Any]:
        context = self._context
        listed, _good = ask("cloud", lambda: context.clients.instances(claim.cloud, self._started), None)
        instance = next((entry for entry in listed or () if claim.instance_id and entry.id == claim.instance_id), None)
        text, _good = ask(
            "console", lambda: context.clients.cloud(claim.cloud).console(claim.instance_id) if claim.instance_id else None, None
        )
        return {
            "instance": instance,
            "instance_listed": None if listed is None else True,
            "console": None if text is None else console_lines(text),
        }

    def _mesh(self, claim: Claim, ask: t.Callable[..., tuple[t.Any, bool]]) -> dict[str, t.Any]:
        context = self._context
        if claim.mesh_backend != "tailscale":
            return {}
        listed = self._devices()
        mine = [device for device in listed or () if device.hostname == claim.name]
        own = next((device for device in mine if device.id == claim.mesh_device_id), None) or next(
            (
                device
                for device in mine
                if _young(device, claim.launch_started) and set(device.tags) >= set(mesh_tags(claim, context.specs))
            ),
            None,
        )
        keys, keys_read = ask("mesh keys", lambda: context.once("keys for evidence", self._keys), ())
        strangers = [
            device
            for device in listed or ()
            if device is not own
            and _young(device, claim.launch_started)
            and (device.hostname == claim.name or not self._is_claimed(device))
        ]
        return {
            "uses_mesh": True,
            "device": own,
            "devices_read": None if listed is None else True,
            "namesakes": tuple(strangers[:5]),
            "key_id": claim.mesh_key_id,
            "key": next((key for key in keys if claim.mesh_key_id and key.id == claim.mesh_key_id), None),
            "keys_read": keys_read or None,
        }

    def _is_claimed(self, device: Device) -> bool:
        return any(device.hostname == claim.name for claim in self._context.records.known_claims())

    def _keys(self) -> t.Sequence[t.Any]:
        mesh = self._context.clients.mesh()
        return mesh.keys() if mesh is not None else ()

    def _cluster(self, claim: Claim, ask: t.Callable[..., tuple[t.Any, bool]]) -> dict[str, t.Any]:
        context, kube, name = self._context, self._context.kube, claim.node_name or claim.name
        (node, conditions), nodes_read = ask("Node", lambda: node_and_conditions(kube, name), (None, ()))
        listed, requests_read = ask(
            "certificate requests", lambda: context.once("requests for evidence", lambda: csr.requests(kube)), ()
        )
        token, token_read = ask("bootstrap tokens", lambda: claim.token_id and token_exists(kube, claim.token_id), None)
        pods, pods_read = ask("pods", lambda: system_pods_in_trouble(kube, name), ()) if node is not None else ((), False)
        pool, started = context.specs.pool_of(claim.pool), claim.launch_started
        events, events_read = ask("events", lambda: events_of(kube, name, pods, started), ())
        version, _good = ask("server version", lambda: context.once("server version", lambda: server_version(context)), "")
        stale = node is not None and is_stale(claim, node, CAPABILITIES[claim.cloud])
        return {
            "node": node,
            "conditions": conditions,
            "nodes_read": nodes_read or None,
            "stale": stale,
            "requests": requests_of(listed, claim.token_id, name, started),
            "requests_read": requests_read or None,
            "token_id": claim.token_id,
            "token_found": token if token_read and claim.token_id else None,
            "token_expires": started + timedelta(seconds=bootstrap_tokens.LONGEST) if started and claim.token_id else None,
            "pods": pods,
            "pods_read": pods_read or None,
            "events": events,
            "events_read": events_read or None,
            "desired_labels": capacity.asserted_labels(claim, pool, context.cluster_id, node)
            if node
            else capacity.node_labels(claim, pool, context.cluster_id),
            "desired_taints": capacity.taints(pool),
            "gpu_resource": "" if pool is not None and pool.gpu_wait == "none" else limits.gpu_resource(claim.offer.model),
            "gpus_expected": min(1, claim.expected_gpus) if pool is not None and pool.gpu_wait == "any" else claim.expected_gpus,
            "server_version": version,
            "schematic": schematic_of(context, claim),
            "talos_api": refused(kube, name) if claim.lane is Lane.TALOS and node is not None and not stale else "",
            "endpoint": str(context.task.params.get("control_plane_endpoint") or ""),
        }

    def _talos(self, claim: Claim, facts: t.Mapping[str, t.Any], unread: dict[str, str]) -> dict[str, t.Any]:
        """What Talos on the machine says of its services. One that falls silent is asked for no longer than the limit, and none after it,
        so that many that fail together are not terminated much later."""
        try:
            reader = reader_of(self._context.task, _ASKING / 2)
        except TgpError as error:
            unread["services"] = f"not asked: {str(error)[:200]}"
            return {}
        addresses = addresses_of(claim, facts.get("device"), None if facts.get("stale") else facts.get("node"))
        why_not = self._why_not_asked(claim, facts, addresses)
        if why_not:
            unread["services"] = f"not asked: {why_not}"
            return {}
        seen = services_of(reader, addresses, _ASKING)
        if seen.services is None and seen.seconds >= _ASKING / 2:
            self._talos_silent.set()
        unread.update(seen.unread)
        logs = {name: console_lines("\n".join(lines)) for name, lines in seen.logs.items()}
        return {"services": seen.services, "service_logs": logs}

    def _why_not_asked(self, claim: Claim, facts: t.Mapping[str, t.Any], addresses: t.Sequence[str]) -> str:
        if facts["instance_listed"] and facts["instance"] is None:
            return f"{claim.cloud} does not list the machine"
        if not addresses:
            return "no address of the machine is known"
        return "another machine did not answer in time" if self._talos_silent.is_set() else ""


def addresses_of(claim: Claim, device: Device | None, node: Node | None) -> list[str]:
    """Where the control plane may reach the machine: in the mesh, as its Node says, at its cloud's address."""
    listed = [*(device.addresses if device else ()), *(node.addresses if node else ()), claim.ip]
    return [address for address in dict.fromkeys(listed) if address[:1].isdigit() or ":" in address]


def _times(claim: Claim, end: JoinEnd, requests: t.Iterable[JoinRequest]) -> dict[str, datetime]:
    """When each step was first seen, by this wait, by an earlier one, or by the cluster."""
    asked = min((request.created for request in requests if request.created is not None), default=None)
    noted = {"device": claim.mesh_seen, "csr": asked, "node": claim.registered}
    return {**{step: moment for step, moment in noted.items() if moment is not None}, **end.seen}


def _young(device: Device, started: datetime | None) -> bool:
    return device.created is not None and (started is None or device.created >= started - timedelta(seconds=60))


def server_version(context: Context) -> str:
    """The API server's version, like v1.36.3."""
    return str(context.kube.get("/version").get("gitVersion") or "")


def schematic_of(context: Context, claim: Claim) -> str:
    """The schematic of the Talos image that the claim's class orders, empty when it names none."""
    node_class = context.specs.classes.get(claim.node_class)
    if node_class is None:
        return ""
    version = context.task.params.get("talos_version") or DEFAULT_TALOS
    return ordered_schematic(node_class.talos_schematic, node_class.talos_image or "", version)


def console_lines(text: str) -> tuple[str, ...]:
    """The newest lines of a boot log without anything that is or may be a secret."""
    return tuple(line[:_LONGEST] for line in redact_foreign(text).splitlines() if line.strip())[-_LINES:]
