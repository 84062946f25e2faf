# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool says of services (lane service), and everything that nodes have and services have not: refused, never ignored."""

from __future__ import annotations

import re
import typing as t

from ..model import IdleProbe, Lane, NodeClass, ServiceSpec
from ..model.labels import PREFIX, TAILNET_PREFIX
from ..planner.offers.ranking import DEFAULT_LANES
from ..providers.registry import CAPABILITIES
from .reading import Reader

Spec = t.Mapping[str, t.Any]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(r"TGP_.*|TS_.*")  # the collection's stamps and the tailnet client's own settings
_OUR_KEYS = (PREFIX, TAILNET_PREFIX)
_INNER = "spec.template.spec"
NODES_ONLY = {  # place in spec: what it says, which a service has not
    "template.spec.taints": "a service has no Node that could be tainted",
    "template.spec.startupTaints": "a service has no Node that could be tainted",
    "disruption.deleteStoppedAfter": "a service runs on a rented machine, which is deleted and never stopped",
    "disruption.idleMode": "a service is idle by its idleProbe, not by pods",
    "disruption.idleSignal": "a service is idle by its idleProbe, not by its GPUs",
    "disruption.idleUtilization": "a service is idle by its idleProbe, not by its GPUs",
    "drainTimeout": "a service has no pods that would have to leave",
    "terminationGracePeriod": "a service has no pods that could hold it",
    "gpuWait": "a service is complete when its health path answers",
    "draDriver": "a service has no Node that could show devices",
    "acceptance": "no pod runs on a service, so none can test it",
    "prePull": "no pod runs on a service, so none can pull images for others",
    "unhealthyConditions": "a service has no Node that could show conditions or taints",
    "pack": "no pod runs on a service",
    "schedulers": "no pod runs on a service",
    "capacityBuffers": "no pod runs on a service",
    "provisioningClasses": "no pod runs on a service",
    "scaleUpDelay": "no pod runs on a service",
    "timeSlicing": "no pod runs on a service",
    "mig": "no pod runs on a service",
    "mps": "no pod runs on a service",
}
PROBE_WAYS = "needs exactly one of url (a path of the service or node) and command (run on the controller)."
PORT_OF_SERVICE = "is for nodes: a service is asked on its healthPort. Remove it."
PORT_OF_NODE = "goes with url, and with nothing else: on which port of the node it is asked. Give both, or none."
IDLE_ONLY = ("consolidateAfter", "consolidationPolicy", "minAge")


def lanes(values: t.Sequence[str], node_class: NodeClass | None, reader: Reader) -> tuple[Lane, ...]:
    """The lanes of a pool. ``node_class`` None = it is not known, and its own fault was reported."""
    wanted = tuple(Lane(word) for word in values)
    path = f"{_INNER}.lanes"
    if Lane.SERVICE in wanted and len(set(wanted)) > 1:
        reader.fault(path, "a pool is of nodes or of services, not of both. Keep service alone, or make a second pool for nodes.")
    elif node_class is not None:
        check_clouds(wanted, node_class, path, reader)
        if Lane.SERVICE in wanted and node_class.mesh.backend != "tailscale":
            backend = node_class.mesh.backend
            reader.fault(
                path, f"a service is reached through the tailnet, and class {node_class.name} has networking.backend {backend}."
            )
    return wanted


def check_clouds(wanted: t.Sequence[Lane], node_class: NodeClass, path: str, reader: Reader) -> None:
    """A fault when no cloud of the class can ever serve one of the lanes: what each can, why, and the way out."""
    asked = tuple(wanted) or DEFAULT_LANES
    clouds = [choice.cloud for choice in node_class.clouds if choice.enabled]
    if not clouds or any(set(asked) & set(CAPABILITIES[cloud].lanes) for cloud in clouds):
        return
    reasons = "; ".join(f"{cloud}: {CAPABILITIES[cloud].lane_reason or 'it serves other lanes'}" for cloud in clouds)
    able = ", ".join(sorted(cloud for cloud, facts in CAPABILITIES.items() if set(asked) & set(facts.lanes) and facts.rented))
    if Lane.SERVICE in asked:
        out = f"Add one that runs containers ({able}) to the class's providers, or take lanes that make nodes."
    else:
        out = f"Add one whose machines become nodes ({able}) to the class's providers, or run a container: lanes [service] with service."
    words = ", ".join(lane.value for lane in asked)
    reader.fault(path, f"no cloud of class {node_class.name} serves lane {words} ({reasons}). {out}")


def service(spec: Spec, accepted: t.Sequence[Lane], reader: Reader) -> tuple[ServiceSpec | None, IdleProbe | None]:
    """The pool's service, None for a pool of nodes, and its idle probe."""
    inner: Spec = spec.get("template", {}).get("spec", {})
    end: Spec = spec.get("disruption", {})
    if Lane.SERVICE not in accepted:
        if "service" in inner:
            reader.fault(f"{_INNER}.service", "is for lane service only. Set lanes: [service], or remove it.")
        return None, _idle_probe(end, reader, service=False)
    _without_nodes(spec, reader)
    probe = _idle_probe(end, reader, service=True)
    if "service" not in inner:
        reader.fault(f"{_INNER}.service", "is missing: lane service has to know what to run. Give image, ports and healthPath.")
        return None, probe
    return _service(inner["service"], reader), probe


def _without_nodes(spec: Spec, reader: Reader) -> None:
    for place, why in NODES_ONLY.items():
        here: t.Any = spec
        for step in place.split("."):
            here = here.get(step, {}) if isinstance(here, t.Mapping) else {}
        if here not in ({}, [], None):
            reader.fault(f"spec.{place}", f"has no effect with lane service: {why}. Remove it.")
    meta: Spec = spec.get("template", {}).get("metadata", {})
    for kind in ("labels", "annotations"):
        for key in meta.get(kind, {}):
            if key.startswith(_OUR_KEYS):
                reader.fault(f"spec.template.metadata.{kind}", f"{key} is set by the collection itself. Remove it.")


def _idle_probe(end: Spec, reader: Reader, *, service: bool) -> IdleProbe | None:
    path = "spec.disruption.idleProbe"
    if "idleProbe" not in end:
        for name in IDLE_ONLY if service else ():
            if name in end:
                reader.fault(
                    f"spec.disruption.{name}",
                    "has no effect without idleProbe, which says when a service is idle. Give one, or remove this.",
                )
        return None
    probe: Spec = end["idleProbe"]
    if ("url" in probe) == ("command" in probe):
        reader.fault(path, PROBE_WAYS)
    if service and "port" in probe:
        reader.fault(f"{path}.port", PORT_OF_SERVICE)
    elif not service and ("url" in probe) != ("port" in probe):
        reader.fault(f"{path}.port", PORT_OF_NODE)
    return IdleProbe(probe.get("url", ""), tuple(probe.get("command", ())), probe.get("port"))


def _service(given: Spec, reader: Reader) -> ServiceSpec:
    path = f"{_INNER}.service"
    ports = tuple(given["ports"])
    if len(set(ports)) < len(ports):
        reader.fault(f"{path}.ports", "a port is listed twice.")
    client = given.get("meshClient", "inject")
    command, args = tuple(given.get("command", ())), tuple(given.get("args", ()))
    if args and not command:
        reader.fault(f"{path}.args", "has no effect without command: the image's own start takes none. Give command, too.")
    if client == "inject" and not command:
        reader.fault(
            f"{path}.command",
            "is missing: our start script takes the place of the image's own start and has to know what to run afterwards. "
            "Give it, or meshClient: image for an image that enters the tailnet by itself.",
        )
    plain: Spec = given.get("environment", {})
    secret: Spec = given.get("environmentFrom", {})
    for kind, names in (("environment", plain), ("environmentFrom", secret)):
        for name in names:
            if not _VARIABLE.fullmatch(name):
                reader.fault(f"{path}.{kind}", f"{name!r} is not a name of a variable: letters, digits and _, no digit first.")
            elif _OURS.fullmatch(name):
                reader.fault(f"{path}.{kind}", f"{name}: variables TGP_… and TS_… are set by the collection. Choose another name.")
    for name in sorted(set(plain) & set(secret)):
        reader.fault(f"{path}.environmentFrom", f"{name} stands in environment, too. Keep one of them.")
    return ServiceSpec(
        image=given["image"],
        ports=ports,
        health_path=given["healthPath"],
        health_port=given.get("healthPort", ports[0]),
        command=command,
        args=args,
        environment=dict(plain),
        environment_from={name: ref for name, entry in secret.items() if (ref := reader.secret_ref(entry)) is not None},
        mesh_client=client,
    )
