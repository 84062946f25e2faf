# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPUNodePool document, valid by its schema, as the model's Pool; and a GPURequest as a pool of one with a class of its own."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from decimal import Decimal

from ..core.errors import InvalidInput
from ..model import (
    Calendar,
    CloudChoice,
    DisruptionBudget,
    Machine,
    NodeClass,
    Pool,
    Requirement,
    UnhealthyCondition,
    Window,
)
from ..model.labels import (
    CLOUD_PROVIDER_TAINT_PREFIX,
    CLUSTER_LABEL,
    DISRUPTED_TAINT,
    GPU_COUNT_LABEL,
    GPU_LOST_TAINT,
    GPU_MEMORY_LABEL,
    GPU_TYPE_LABEL,
    INITIALIZING_TAINT,
    INSTANCE_ID_LABEL,
    NODE_TAINT_PREFIX,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    PREFIX,
    PROVIDER_LABEL,
    PROVISIONED_LABEL,
    REGION_LABEL,
    RELIABILITY_LABEL,
    SPOT_LABEL,
)
from ..model.spec import DRAIN_TIMEOUT, IDLE_BELOW, IDLE_WINDOW, UNHEALTHY_FOR
from ..planner.disruption.disruption_budgets import valid
from ..planner.offers import requirements as words
from ..providers.registry import ENTRIES
from ..talos.validation.rules import key_problem, value_problem
from ..units.calendar import REMEDY, parse_cron, zone
from ..units.values import print_duration
from .new_node import acceptance, pre_pull, shared_gpus
from .node_class import OWN_MACHINES, budget, fingerprint, mesh_choice, own_regions, share, template_text, with_talos
from .reading import Reader, taints
from .schemas import DAYS
from .service import check_clouds, lanes, service
from .wireguard import without_key

REQUEST_NAMESPACE = "tgp-system"
REQUEST_CLASS = "request-"
_EXAMPLE = {GPU_COUNT_LABEL: "2", GPU_MEMORY_LABEL: "24576"}
_LEAST_MEMORY = 1024


def node_pool(
    document: Spec, reader: Reader, classes: t.Mapping[str, NodeClass], broken: t.Collection[str], namespace: str
) -> Pool:
    """The pool. ``broken``: names of classes that have faults of their own; ``namespace`` is that of a document which names none."""
    spec: Spec = document["spec"]
    template: Spec = spec.get("template", {})
    inner: Spec = template.get("spec", {})
    meta: Spec = template.get("metadata", {})
    limits: Spec = spec.get("limits", {})
    name = spec["nodeClassRef"]["name"]
    if name not in classes and name not in broken:
        hint = f"Known are {', '.join(sorted(classes))}." if classes else "No GPUNodeClass was given."
        reader.fault("spec.nodeClassRef.name", f"there is no class {name!r}. {hint}")
    price = reader.money(spec.get("maxHourlyPrice"), "spec.maxHourlyPrice")
    cost = classes[name].max_hourly_cost if name in classes else None
    if price is not None and cost is not None and price > cost:
        reader.warn("spec.maxHourlyPrice", f"{price} is above the class's maxHourlyCost {cost}; no machine can cost that much.")
    if "maxNodes" in limits and limits["maxNodes"] < spec.get("minNodes", 0):
        reader.fault("spec.minNodes", f"{spec['minNodes']} is above limits.maxNodes {limits['maxNodes']}.")
    _check_replicas(spec, reader)
    check_marks(template, reader)
    accepted = lanes(inner.get("lanes", ()), classes.get(name), reader)
    serves, probe = service(spec, accepted, reader)
    return Pool(
        namespace=document["metadata"].get("namespace", namespace),
        name=document["metadata"]["name"],
        node_class=name,
        requirements=_requirements(
            inner.get("requirements", ()), own_regions(classes[name].clouds if name in classes else ()), reader
        ),
        taints=taints(inner.get("taints", ())),
        startup_taints=taints(inner.get("startupTaints", ())),
        labels=dict(meta.get("labels", {})),
        annotations=dict(meta.get("annotations", {})),
        lanes=accepted,
        max_hourly_price=price,
        max_nodes=limits.get("maxNodes"),
        budget=budget(spec, reader),
        resources=reader.gpu_limits(limits),
        min_nodes=spec.get("minNodes", 0),
        replicas=spec.get("replicas"),
        weight=spec.get("weight", 0),
        termination_grace=reader.duration(spec.get("terminationGracePeriod"), "spec.terminationGracePeriod", 600),
        drain_timeout=reader.duration(spec.get("drainTimeout"), "spec.drainTimeout", DRAIN_TIMEOUT),
        registration_timeout=reader.duration_or_never(
            spec.get("registrationTimeout"), "spec.registrationTimeout", None, never=False
        ),
        unhealthy_timeout=reader.duration_or_never(spec.get("unhealthyTimeout"), "spec.unhealthyTimeout", None, never=False),
        unhealthy_conditions=unhealthy_conditions(spec, reader),
        calendar=calendar(spec.get("calendar"), reader, limits.get("maxNodes")),
        gpu_wait=spec.get("gpuWait", "all"),
        acceptance=acceptance(spec, reader),
        pre_pull=pre_pull(spec, reader),
        orphaned_policy=spec.get("orphanedPolicy", "Drain"),
        generation=fingerprint([inner, meta]),
        service=serves,
        idle_probe=probe,
        idle_probed=probe is not None and serves is None,
        **scaling(spec, reader),
        **shared_gpus(spec, reader, classes.get(name)),
        **disruption(spec.get("disruption", {}), reader, services=serves is not None),
    )


def _check_replicas(spec: Spec, reader: Reader) -> None:
    """``replicas`` is the number of machines, so no other field may give a floor, and no limit may be below it."""
    if "replicas" not in spec:
        return
    number, most = spec["replicas"], spec.get("limits", {}).get("maxNodes")
    if "minNodes" in spec:
        reader.fault("spec.replicas", "is an exact number and minNodes a floor. Use one of them.")
    for place, window in enumerate(spec.get("calendar", {}).get("windows", ())):
        if "minNodes" in window:
            reader.fault(
                f"spec.calendar.windows[{place}].minNodes", "is a floor, and spec.replicas an exact number. Use one of them."
            )
    if most is not None and most < number:
        reader.fault("spec.replicas", f"{number} is above limits.maxNodes {most}.")


def request(document: Spec, reader: Reader, machines: t.Sequence[Machine] = ()) -> tuple[NodeClass, Pool]:
    """A GPURequest: exactly one machine, from ``provider`` or from any cloud there is a credential for; own ``machines`` only by name."""
    spec: Spec = document["spec"]
    name = document["metadata"]["name"]
    talos: Spec = spec.get("talosConfig", {})
    cloud = reader.cloud(spec["provider"], "spec.provider") if "provider" in spec else ""
    if "credentialsRef" in spec and not cloud:
        reader.fault("spec.credentialsRef", "is the key of one cloud, so provider must name it.")
    credentials = reader.secret_ref(spec.get("credentialsRef"))
    if cloud == OWN_MACHINES and not machines:
        reader.fault("spec.provider", "no own machines are configured. Give node groups.")
    choices = tuple(
        CloudChoice(
            cloud_name, credentials=credentials, machines=tuple(machines) if cloud_name == OWN_MACHINES else (), implicit=not cloud
        )
        for cloud_name in ([cloud] if cloud else ENTRIES)
        if cloud_name != OWN_MACHINES or cloud
    )
    model = reader.model(spec["gpuType"], "spec.gpuType")
    template = template_text(talos, reader)
    hub = filter(None, [spec.get("wireguardConfig")])
    price = reader.money(spec.get("maxHourlyPrice"), "spec.maxHourlyPrice")
    if price is None and "maxHourlyPrice" not in spec:
        reader.warn("spec.maxHourlyPrice", "is not set, so what the machine costs is not limited.")
    mesh = mesh_choice(spec, choices, reader)
    node_class = dataclasses.replace(
        with_talos(REQUEST_CLASS + name, choices, mesh, talos, template, reader),
        gpu_types=(model,) if model else (),
        gpu_count=spec.get("gpuCount"),
        regions=(reader.region(spec["region"], "spec.region", own_regions(choices)),) if "region" in spec else (),
        spot_allowed=spec.get("spot", False),
        max_nodes=1,
        allowed_namespaces=(),
        generation=fingerprint([without_key(talos), template, spec.get("tailscaleConfig"), *hub]),
    )
    if cloud:
        check_clouds((), node_class, "spec.provider", reader)
    pool = Pool(
        namespace=REQUEST_NAMESPACE,
        name=name,
        node_class=node_class.name,
        max_hourly_price=price,
        expire_after=reader.duration_or_never(spec.get("maxLifetime"), "spec.maxLifetime", None),
        consolidate_after=reader.duration_or_never(spec.get("idleTimeout"), "spec.idleTimeout", None),
        request=True,
        acceptance=acceptance(spec, reader),
        pre_pull=pre_pull(spec, reader),
        orphaned_policy=spec.get("orphanedPolicy", "Drain"),
        budget=budget(spec, reader),
        cloud=cloud or "",
        generation=fingerprint([name]),
    )
    return node_class, pool


def _requirements(entries: t.Sequence[Spec], places: t.Sequence[str], reader: Reader) -> tuple[Requirement, ...]:
    return tuple(_requirement(entry, f"spec.template.spec.requirements[{at}]", places, reader) for at, entry in enumerate(entries))


def _requirement(entry: Spec, path: str, places: t.Sequence[str], reader: Reader) -> Requirement:
    """``places``: regions of the class's own machines."""
    key, operator, values = entry["key"], entry["operator"], list(entry.get("values", ()))
    if operator in ("Exists", "DoesNotExist") and values:
        reader.fault(f"{path}.values", f"{operator} takes no values.")
    elif operator in ("In", "NotIn") and not values:
        reader.fault(f"{path}.values", f"{operator} needs at least one value.")
    elif operator in words.NUMBER_OPERATORS:
        _number(key, operator, values, path, reader)
    elif key in words.WHOLE_KEYS and any(not (value.isascii() and value.isdigit()) for value in values):
        reader.fault(
            f"{path}.values",
            f'{key} is a whole number{", in MiB" if key == GPU_MEMORY_LABEL else ""}; write it like "{_EXAMPLE[key]}".',
        )
    elif key == SPOT_LABEL and any(value not in ("true", "false") for value in values):
        reader.fault(f"{path}.values", f'{key} is "true" or "false".')
    elif key == GPU_TYPE_LABEL:
        values = [reader.model(value, f"{path}.values[{place}]") or value for place, value in enumerate(values)]
    elif key == REGION_LABEL:
        values = [reader.region(value, f"{path}.values[{place}]", places) for place, value in enumerate(values)]
    elif key == PROVIDER_LABEL:
        values = [reader.cloud(value, f"{path}.values[{place}]") or value for place, value in enumerate(values)]
    if key == GPU_MEMORY_LABEL and any(value.isascii() and value.isdigit() and 0 < int(value) < _LEAST_MEMORY for value in values):
        reader.warn(f"{path}.values", f'are MiB, and no GPU has so few: 24 GiB are "{_EXAMPLE[GPU_MEMORY_LABEL]}".')
    return Requirement(key, operator, tuple(values))


def _number(key: str, operator: str, values: t.Sequence[str], path: str, reader: Reader) -> None:
    if key not in words.NUMBER_KEYS:
        reader.fault(
            f"{path}.operator", f"{operator} compares numbers; {key} is none. Use one of {', '.join(words.SET_OPERATORS)}."
        )
    elif len(values) != 1:
        reader.fault(f"{path}.values", f"{operator} needs exactly one value.")
    elif not (values[0].isascii() and values[0].replace(".", "", 1 if key == RELIABILITY_LABEL else 0).isdigit()):
        reader.fault(f"{path}.values[0]", f"{values[0]!r} is not a whole number of zero or more.")
    elif key == RELIABILITY_LABEL and float(values[0]) > 1:
        reader.fault(f"{path}.values[0]", f'{values[0]!r} is not a fraction; write 95 per cent as "0.95".')


# ---- labels, annotations and taints of a pool, checked before anything is rented: what the API server refuses, it refuses on a machine
# that costs already, and a node without them is never complete

_OURS = "is set by the collection itself. Remove it."
RESERVED_LABELS = frozenset(  # by which we find what is ours
    (NODEPOOL_LABEL, NODECLASS_LABEL, PROVIDER_LABEL, PROVISIONED_LABEL, CLUSTER_LABEL, INSTANCE_ID_LABEL)
)
_KEPT_TAINTS = (PREFIX, NODE_TAINT_PREFIX, CLOUD_PROVIDER_TAINT_PREFIX)  # of which no health agent has one
RESERVED_TAINTS = frozenset((INITIALIZING_TAINT, DISRUPTED_TAINT, GPU_LOST_TAINT))  # by which we say how a node is


def check_marks(template: Spec, reader: Reader) -> None:
    """A fault for each mark under ``spec.template`` that no node could carry, or that would speak for us."""
    meta: Spec = template.get("metadata", {})
    inner: Spec = template.get("spec", {})
    for key, value in meta.get("labels", {}).items():
        if problem := key_problem(key) or value_problem(value) or (f"{key} {_OURS}" if key in RESERVED_LABELS else ""):
            reader.fault("spec.template.metadata.labels", problem)
    for key in meta.get("annotations", {}):
        if problem := key_problem(key):
            reader.fault("spec.template.metadata.annotations", problem.replace("not a label key", "not a key of an annotation"))
    stays: set[str] = set()
    for field in ("taints", "startupTaints"):
        keys: set[tuple[str, str]] = set()
        for place, taint in enumerate(inner.get(field, ())):
            key, path = taint["key"], f"spec.template.spec.{field}[{place}]"
            problem = key_problem(key).replace("not a label key", "not a key of a taint") or value_problem(taint.get("value", ""))
            if not problem and key in RESERVED_TAINTS:
                problem = f"{key} {_OURS}"
            elif (key, taint["effect"]) in keys:
                problem = f"there are two taints {key} with effect {taint['effect']}. Keep one."
            elif key in stays:
                problem = f"{key} is among taints, too, which stay: the node would never be complete. Keep one of the two."
            if problem:
                reader.fault(path, problem)
            keys.add((key, taint["effect"]))
        stays = {key for key, _effect in keys}


# ---- what a pool says about machines for waiting pods (L-17)


def scaling(spec: t.Mapping[str, t.Any], reader: Reader) -> dict[str, t.Any]:
    """The Pool's fields that they give, by name."""
    return {
        "pack": spec.get("pack", "price"),
        "schedulers": tuple(spec.get("schedulers", ())),
        "scale_up_delay": reader.duration(spec.get("scaleUpDelay"), "spec.scaleUpDelay", 0),
        "dra_driver": spec.get("draDriver", ""),
        "capacity_buffers": spec.get("capacityBuffers", False),
        "provisioning_classes": tuple(spec.get("provisioningClasses", ())),
    }


# ---- by which signs on its Node a machine is unhealthy (L-37)

_UNHEALTHY = "spec.unhealthyConditions"
ONE_SIGN = "needs exactly one of type (a condition of the Node), taint (the key of a taint) and xids (XIDs of a GPU)."


def unhealthy_conditions(spec: Spec, reader: Reader) -> tuple[UnhealthyCondition, ...]:
    """The pool's own entries, in their order. Faults: an entry that could never fit, or that would take the part of another field."""
    own = {taint["key"] for taint in spec.get("template", {}).get("spec", {}).get("taints", ())}
    entries: list[UnhealthyCondition] = []
    for place, given in enumerate(spec.get("unhealthyConditions", ())):
        path = f"{_UNHEALTHY}[{place}]"
        kind, taint, xids = given.get("type", ""), given.get("taint", ""), tuple(given.get("xids", ()))
        if [bool(kind), bool(taint), bool(xids)].count(True) != 1:
            reader.fault(path, ONE_SIGN)
        for field in ("status", "contains"):
            if not kind and field in given:
                reader.fault(f"{path}.{field}", "is of a condition. Remove it.")
        if not taint and "value" in given:
            reader.fault(f"{path}.value", "is of a taint. Remove it.")
        if kind == "Ready":
            reader.fault(f"{path}.type", "how long a node may be not Ready is spec.unhealthyTimeout. Remove this entry.")
        if taint.startswith(_KEPT_TAINTS):
            reader.fault(f"{path}.taint", f"{taint} is set by Kubernetes or by the collection itself. Name one of a health agent.")
        elif any(key == taint or (taint.endswith("/") and key.startswith(taint)) for key in own):
            reader.fault(
                f"{path}.taint", f"{taint} is one that spec.template.spec.taints gives every node of the pool. Remove this entry."
            )
        if given.get("action") == "Ignore" and "for" in given:
            reader.fault(f"{path}.for", "has no effect with action: Ignore. Remove it.")
        entry = UnhealthyCondition(
            type=kind,
            status=given.get("status", "True"),
            taint=taint,
            value=given.get("value", ""),
            contains=tuple(given.get("contains", ())),
            xids=xids,
            lasts=reader.duration(given.get("for"), f"{path}.for", UNHEALTHY_FOR),
            action=given.get("action", "Report"),
        )
        if any(_covers(before, entry) for before in entries):
            reader.fault(path, "an entry before it fits whatever this one fits, so it has no effect. Remove it, or exchange them.")
        entries.append(entry)
    return tuple(entries)


def _covers(before: UnhealthyCondition, entry: UnhealthyCondition) -> bool:
    same = (before.type, before.status, before.taint) == (entry.type, entry.status, entry.taint)
    wide = before.contains in ((), entry.contains) and before.value in ("", entry.value)
    return same and wide and set(entry.xids) <= set(before.xids)


# ---- the part of a GPUNodePool that says when its nodes go by themselves: ``spec.disruption``

DISRUPTION_PATH = "spec.disruption"
SHORTEST_WINDOW: t.Final = 600  # seconds of low use without which a node is never idle by its GPUs (L-36)
UNDERUTILIZED = "WhenUnderutilized"
_SAME = {"WhenEmpty": "WhenIdle", "WhenEmptyOrUnderutilized": UNDERUTILIZED}  # Karpenter's words


def disruption(end: Spec, reader: Reader, *, services: bool = False) -> dict[str, t.Any]:
    """The Pool's fields that ``spec.disruption`` gives, by name. ``services``: the pool runs services, which share no machine."""
    policy = end.get("consolidationPolicy", "WhenIdle")
    policy = _SAME.get(policy, policy)
    if services and policy == UNDERUTILIZED:
        reader.fault(
            f"{DISRUPTION_PATH}.consolidationPolicy",
            "a service has its machine to itself, so it is never underutilized. Use WhenIdle.",
        )
    for field in ("utilizationThreshold", "replaceCheaperPercent"):
        if field in end and policy != UNDERUTILIZED:
            reader.fault(f"{DISRUPTION_PATH}.{field}", f"has no effect without consolidationPolicy: {UNDERUTILIZED}. Remove it.")
    threshold = share(end.get("utilizationThreshold"), f"{DISRUPTION_PATH}.utilizationThreshold", reader, most=100)
    return {
        "consolidation_policy": policy,
        "utilization_threshold": Decimal("0.5") if threshold is None else threshold,
        "replace_cheaper": share(end.get("replaceCheaperPercent"), f"{DISRUPTION_PATH}.replaceCheaperPercent", reader, most=100)
        or Decimal(0),
        "consolidate_after": reader.duration_or_never(end.get("consolidateAfter"), f"{DISRUPTION_PATH}.consolidateAfter", 600),
        "delete_stopped_after": reader.duration_or_never(
            end.get("deleteStoppedAfter"), f"{DISRUPTION_PATH}.deleteStoppedAfter", None
        ),
        "expire_after": reader.duration_or_never(end.get("expireAfter"), f"{DISRUPTION_PATH}.expireAfter", None),
        "expire_jitter": _jitter(end, reader),
        "drift_policy": end.get("driftPolicy", "Report"),
        "surge": end.get("surge", True),
        "gpu_loss_policy": end.get("gpuLossPolicy", "Keep"),
        "min_age": reader.duration(end.get("minAge"), f"{DISRUPTION_PATH}.minAge", 600),
        "idle_mode": end.get("idleMode", "workload"),
        **_idle_signal(end, reader),
        "disruption_budgets": tuple(
            _budget(budget, f"{DISRUPTION_PATH}.budgets[{place}]", reader) for place, budget in enumerate(end.get("budgets", ()))
        ),
    }


def _idle_signal(end: Spec, reader: Reader) -> dict[str, t.Any]:
    """What says that a node is idle: its pods, the utilization of its GPUs, or both (L-36)."""
    signal, path = end.get("idleSignal", "pods"), f"{DISRUPTION_PATH}.idleUtilization"
    given: Spec = end.get("idleUtilization", {})
    if signal == "pods" and "idleUtilization" in end:
        reader.fault(path, "has no effect with idleSignal: pods. Set idleSignal to utilization or both, or remove it.")
    below = share(given.get("below"), f"{path}.below", reader, most=100)
    if below is not None and below == 0:
        reader.fault(f"{path}.below", "no GPU is used at less than 0%. Give 1% or more.")
    window = reader.duration(given.get("window"), f"{path}.window", IDLE_WINDOW)
    if window < SHORTEST_WINDOW:
        reader.fault(f"{path}.window", f"{window} s is less than two runs. Give {print_duration(SHORTEST_WINDOW)} or more.")
    return {"idle_signal": signal, "idle_below": IDLE_BELOW if below is None else below, "idle_window": window}


def _jitter(end: Spec, reader: Reader) -> Decimal:
    if "expireJitter" in end and end.get("expireAfter", "Never") == "Never":
        reader.fault(f"{DISRUPTION_PATH}.expireJitter", "has no effect without expireAfter. Give expireAfter, or remove it.")
    return share(end.get("expireJitter"), f"{DISRUPTION_PATH}.expireJitter", reader, most=100) or Decimal(0)


def _budget(spec: Spec, path: str, reader: Reader) -> DisruptionBudget:
    nodes = str(spec["nodes"])
    if not valid(nodes):
        reader.fault(f"{path}.nodes", f'{nodes!r} is neither a number of nodes nor a share from 0% to 100%, like "10%".')
    if ("schedule" in spec) != ("duration" in spec):
        missing = "duration" if "schedule" in spec else "schedule"
        reader.fault(f"{path}.{missing}", "is missing: a budget has both a schedule and a duration, or none of the two.")
    if "timeZone" in spec and "schedule" not in spec:
        reader.fault(f"{path}.timeZone", "has no effect without a schedule. Remove it.")
    for field, read in (("schedule", parse_cron), ("timeZone", zone)):
        try:
            read(spec.get(field, "UTC" if field == "timeZone" else "@daily"))
        except InvalidInput as error:
            reader.fault(f"{path}.{field}", str(error))
    lasts = reader.duration(spec["duration"], f"{path}.duration", 1) if "duration" in spec else None
    if lasts == 0:
        reader.fault(f"{path}.duration", "is 0, so the budget would never be in force.")
    return DisruptionBudget(nodes, tuple(spec.get("reasons", ())), spec.get("schedule", ""), lasts, spec.get("timeZone", "UTC"))


# ---- ``spec.calendar`` of a GPUNodePool, valid by its schema, as the model's Calendar

CALENDAR = "spec.calendar"


def calendar(spec: Spec | None, reader: Reader, max_nodes: int | None = None) -> Calendar | None:
    """The pool's calendar, None without one. Faults: an unknown time zone, a window without length, a floor above ``max_nodes``, which the
    pool may have."""
    if spec is None:
        return None
    name = spec.get("timeZone", "UTC")
    try:
        zone(name)
    except InvalidInput:
        reader.fault(f"{CALENDAR}.timeZone", f"there is no time zone {name!r}. {REMEDY}")
    for place, window in enumerate(spec["windows"]):
        if max_nodes is not None and window.get("minNodes", 0) > max_nodes:
            reader.fault(f"{CALENDAR}.windows[{place}].minNodes", f"{window['minNodes']} is above limits.maxNodes {max_nodes}.")
    return Calendar(
        name, tuple(_window(window, f"{CALENDAR}.windows[{place}]", reader) for place, window in enumerate(spec["windows"]))
    )


def _window(spec: Spec, path: str, reader: Reader) -> Window:
    days = frozenset(DAYS.index(day) for day in spec.get("days", DAYS))
    start, end = _time(spec["from"]), _time(spec["to"])
    if start == end and spec["to"] != "24:00":
        reader.fault(f"{path}.to", f"{spec['to']} is also when the window begins. For a whole day write from 00:00 to 24:00.")
    stop = _time(spec["hardStop"]) if "hardStop" in spec else None
    return Window(days, start, end, spec.get("minNodes"), stop)


def _time(text: str) -> datetime.time:
    """A time of day of the schema's form; 24:00 is the next day's beginning."""
    hour, minute = (int(part) for part in text.split(":"))
    return datetime.time(hour % 24, minute)


Spec = t.Mapping[str, t.Any]
