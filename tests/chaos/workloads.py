# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that wait in stories: gangs (L-39), claims for devices (L-38), hard rules of placement (L-40) and images that take long to pull. And
whether what a run of ``autoscale`` rents is of use to those that wait (I-34)."""

from __future__ import annotations

import collections
import dataclasses
import random
import typing as t

from sandbox import dra_driver
from sandbox import provisioning_requests as kueue
from sandbox.world import Machine

from . import queues
from .sight import Json, Sight, pool_in

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Run
    from .stage import Stage

GANG, DEVICE, PLACED, PULLING = "gang", "pod with a device", "pod with a place", "pod that pulls"
_POD, _API = "/api/v1/namespaces", "/apis/resource.k8s.io/v1/namespaces"
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_NOWHERE = "nowhere-1"  # a zone in which nothing is on sale
_MARK = "stories.example/"  # labels that tell the invariant what a pod is
_GANGS: dict[str, t.Callable[[str, int], tuple[dict[str, str], dict[str, str]]]] = {
    "jobset": lambda name, _size: ({"jobset.sigs.k8s.io/jobset-name": name}, {}),
    "coscheduling": lambda name, _size: ({"scheduling.x-k8s.io/pod-group": name}, {}),
    "kueue": lambda name, size: (
        {"kueue.x-k8s.io/pod-group-name": name},
        {"kueue.x-k8s.io/pod-group-total-count": str(size)},
    ),
    "lws": lambda name, size: (
        {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-index": "0"},
        {"leaderworkerset.sigs.k8s.io/size": str(size)},
    ),
    "podgroup": lambda name, size: (
        {"scheduling.x-k8s.io/pod-group": name},
        {f"{_MARK}least": str(size)},
    ),  # with an object that says so
}  # what each system writes to the pods of a gang of that size: labels and annotations


# ---- what lines do


def ask(stage: Stage, rest: str) -> None:
    """``ask gang jobset 3`` or, of a gang of four, ``ask gang lws 3 4``; ``ask device 2``, ``ask device 1 kube-system``; ``ask spread 3``,
    ``ask near 2``, ``ask apart 2``, ``ask zone 1``, ``ask nowhere 1``, ``ask team 2``, ``ask request 2``, ``ask buffer 1``."""
    what, *words = rest.split()
    if what == "gang":
        _gang(stage, words[0], int(words[1]), int(words[-1]))
        return
    if what in ("request", "buffer"):
        getattr(queues, what)(stage, _name(stage), int(words[0]))
        return
    for _one in range(int(words[0])):
        name = _name(stage)
        if what == "team":
            _make(stage, name, {queues.TEAM_MARK: "red", "tgp.io/team": "red"}, {}, {})
            continue
        if what == "device":
            namespace = words[1] if len(words) > 1 else "default"
            stage.adverse.words[name] = DEVICE
            _make(stage, name, {}, {}, _device(stage, name, namespace), namespace)
            continue
        labels, spec = _PLACES[what](stage, name)
        stage.adverse.words[name] = PLACED
        _make(stage, name, labels, {}, spec)


def ask_plain(stage: Stage, number: int) -> None:
    """Pods that want a GPU each, and that a cluster with a DRA driver gives a device."""
    for _one in range(number):
        name = _name(stage)
        spec = _device(stage, name, "default") if stage.ground.dra else {}
        _make(stage, name, {}, {"sandbox/run-seconds": "5400"}, spec)


def _name(stage: Stage) -> str:
    return f"ask-{stage.loom.dice.getrandbits(40):010x}"


def _gang(stage: Stage, system: str, pods: int, size: int) -> None:
    name = f"gang-{stage.loom.dice.getrandbits(40):010x}"
    stage.adverse.words[name] = GANG
    labels, notes = _GANGS[system](name, size)
    if system == "podgroup":
        queues.group(stage, name, size)
    mark = {
        f"{_MARK}gang": name,
        f"{_MARK}size": str(size if notes else pods),
    }  # where pods say no size, there are as many as there are
    for number in range(pods):
        spec = _device(stage, f"{name}-{number}", "default") if stage.ground.dra else {}
        _make(stage, f"{name}-{number}", {**labels, **mark}, {**notes, "sandbox/run-seconds": "1800"}, spec)


def _make(stage: Stage, name: str, labels: dict[str, str], notes: dict[str, str], spec: Json, namespace: str = "default") -> None:
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "x", "controller": True}]
    resources = {"claims": [{"name": "gpu"}]} if "resourceClaims" in spec else {"limits": {stage.ground.resource: "1"}}
    container = {"name": "c", "image": "x", "resources": resources}
    meta = {"name": name, "labels": {"app": name, **labels}, "annotations": notes, "ownerReferences": owner}
    body = {"metadata": meta, "spec": {"tolerations": [{"operator": "Exists"}], "containers": [container], **spec}}
    stage.kube("POST", f"{_POD}/{namespace}/pods", body)


def _device(stage: Stage, name: str, namespace: str) -> Json:
    exactly = {"deviceClassName": dra_driver.DRIVER, "count": 1}
    template = {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}}}
    stage.kube("POST", f"{_API}/{namespace}/resourceclaimtemplates", template)
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def _spread(_stage: Stage, _name: str) -> tuple[dict[str, str], Json]:
    app = {"spread": "yes"}
    rule = {"topologyKey": _HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": app}}
    return app, {"topologySpreadConstraints": [rule]}


def _near(kind: str, key: str) -> t.Callable[[Stage, str], tuple[dict[str, str], Json]]:
    def made(_stage: Stage, _name: str) -> tuple[dict[str, str], Json]:
        app = {kind: "yes"}
        term = {"labelSelector": {"matchLabels": app}, "topologyKey": key}
        return app, {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    return made


def _volume(where: t.Callable[[Stage], str]) -> t.Callable[[Stage, str], tuple[dict[str, str], Json]]:
    """A volume that exists in one zone."""

    def made(stage: Stage, name: str) -> tuple[dict[str, str], Json]:
        zone = where(stage)
        term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
        volume = {"capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
        stage.kube("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
        claim = {"metadata": {"name": name}, "spec": {"volumeName": name, "accessModes": ["ReadWriteOnce"]}}
        stage.kube("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)
        return {f"{_MARK}zone": zone}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}

    return made


_PLACES: dict[str, t.Callable[[Stage, str], tuple[dict[str, str], Json]]] = {
    "spread": _spread,
    "near": _near("podAffinity", _ZONE),
    "apart": _near("podAntiAffinity", _HOST),
    "zone": _volume(lambda stage: stage.world.offers[-1].region),
    "nowhere": _volume(lambda _stage: _NOWHERE),
}
LINES: dict[str, t.Callable[[Stage, str], None]] = {"ask": ask}


# ---- the invariant


@dataclasses.dataclass(frozen=True)
class Before:
    """What a run of ``autoscale`` finds: machines that were ever made, that live and that are well, pods that wait, and GPUs in use by Node. A
    machine on its way that fails in the run was counted on all the same."""

    made: frozenset[str]
    living: tuple[Machine, ...]
    well: tuple[Machine, ...]
    waiting: tuple[Json, ...]
    used: t.Mapping[str, int]
    asked: int  # pods that requests and buffers ask for

    @classmethod
    def of(cls, sight: Sight) -> Before:
        claims = sight.claims()
        well = [
            one
            for one in sight.living()
            if sight.is_complete(one)
            and not sight.is_cordoned(one.name)
            and "struck" not in one.details
            and one.name in claims
            and not claims[one.name].get("deletion")
        ]
        pods = [one for one in sight.pods() if _wants_gpu(one) and "deletionTimestamp" not in one["metadata"]]
        pods = [one for one in pods if one.get("status", {}).get("phase", "Pending") in ("Pending", "Running")]
        waiting = [one for one in pods if not one["spec"].get("nodeName")]
        used = collections.Counter(one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName"))
        return cls(
            frozenset(one.id for one in sight.made()), tuple(sight.living()), tuple(well), tuple(waiting), used, _asked(sight)
        )


def _asked(sight: Sight) -> int:
    over = ("Failed", "BookingExpired", "CapacityRevoked")
    asking = [one for one in sight.requests().values() if not set(over) & set(kueue.conditions(one))]
    pods = sum(one["spec"]["podSets"][0]["count"] for one in asking)
    return pods + sum(one["spec"].get("replicas") or 0 for one in sight.buffers().values())


def _wants_gpu(pod: Json) -> bool:
    parts = [one.get("resources") or {} for one in pod["spec"]["containers"]]
    return any(one.get("claims") or any(name.startswith("nvidia.com/") for name in one.get("limits") or {}) for one in parts)


def _mark(pod: Json, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(f"{_MARK}{name}", ""))


def I34_what_is_rented_for_pods_is_of_use(sight: Sight, run: Run, before: Before) -> str:
    """After a run of ``autoscale`` that nothing disturbed: beyond what documents and replacements ask for, it rented no more machines than pods
    wait, none for a pod that nothing on sale can serve, those in the zone of a volume where all wait for one, and for a gang all or none."""
    if run.struck or run.bad or run.refused:
        return ""
    new = [one for one in sight.made() if one.id not in before.made and pool_in(one.name) in ("training", "batch")]
    extra = len(new) - _without_pods(sight, before)
    if extra <= 0:
        return ""
    poor = bool(sight.rig.options.get("team_budgets"))  # type: ignore[attr-defined]
    waiting = [one for one in before.waiting if not (poor and _mark(one, "team"))]
    single = [one for one in waiting if not _mark(one, "gang") and _mark(one, "zone") != _NOWHERE]
    needed = _needed(sight, before)
    if extra <= before.asked:
        return ""
    if extra > len(single) + sum(needed.values()) + before.asked:
        return f"{extra} machines are rented for {len(single)} pods and gangs that need {needed}"
    zones = {_mark(one, "zone") for one in single}
    if (
        not needed
        and not before.asked
        and len(zones) == 1
        and (zone := zones.pop())
        and sum(one.offer.region == zone for one in new) < extra
    ):
        return f"pods wait for {zone}, and rented is {', '.join(one.offer.region for one in new)}"
    if extra <= len(single) + before.asked:
        return ""
    free = sum(sight.rented(one) - before.used.get(one.name, 0) for one in (*before.living, *new))
    least = min(needed.values(), default=0)
    return f"{extra} machines are rented, {free} GPUs are free, and the smallest gang needs {least}" if free < least else ""


def _without_pods(sight: Sight, before: Before) -> int:
    """How many machines may be new whatever pods wait: for documents, and in the place of others."""
    documents, there = sight.documents(), collections.Counter(pool_in(one.name) for one in before.well)
    asked = sum(
        max(0, int(spec.get("replicas") or spec.get("minNodes") or 0) - there[name])
        for name, spec in documents.items()
        if name in ("training", "batch")
    )
    ended = sum(1 for one in before.well if one.ended is not None)
    replaced = [one for one in sight.claims().values() if one.get("replaces") and set(one["ids_seen"]) - before.made]
    return asked + ended + len(replaced)


def _needed(sight: Sight, before: Before) -> dict[str, int]:
    """Pods of each gang that wait, where all that it needs exist: the others ask for nothing."""
    waiting = collections.Counter(_mark(one, "gang") for one in before.waiting)
    del waiting[""]
    found = {}
    for name, number in waiting.items():
        members = [one for one in sight.pods() if _mark(one, "gang") == name]
        if len(members) >= int(_mark(members[0], "size")) if members else False:
            found[name] = number
    return found


# ---- chance


def scenes(ground: Ground, dice: random.Random, place: int) -> dict[str, list[str]]:
    """One for each ingredient."""
    pods = dice.choice((2, 3, 4))
    size = pods + dice.choice((0, 0, 0, 1))
    gang = f"ask gang {dice.choice(sorted(_GANGS))} {pods} {size}"
    kinds = ("spread", "near", "apart", "nowhere", *(("zone",) if ground.cloud == "lambda" else ()))
    asked = f"ask {dice.choice(kinds)} {dice.choice((1, 2, 3))}"
    after = dice.choice((["done", "rest 660", "run autoscale"], ["rest 1900", "run reap"], ["run loop looks=4"]))
    after = ["run autoscale"] if ground.has_hub() else after  # a class with a hub has no loop
    found = {
        GANG: [*dice.choice(([], ["demand 1"], ["run provision nodes=1"])), gang, "rest 30", "run autoscale", "rest 70", *after],
        PLACED: [*dice.choice(([], ["run provision nodes=1"])), asked, "rest 30", "run autoscale", "rest 70", *after],
        PULLING: ["run provision nodes=1", f"pod {place} pulling", *["rest 330", "run reap"] * 3, "run autoscale"],
    }
    if ground.dra:
        found[DEVICE] = [
            f"ask device {dice.choice((1, 2))}{dice.choice(('', ' kube-system'))}",
            *["rest 40", "run autoscale"] * 2,
            *["rest 660", "run reap"] * 2,
            *dice.choice(([], ["done", "rest 30", "run autoscale", "rest 660", "run reap"])),
        ]
    return found
