# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room that stories ask for by objects: ProvisioningRequests, CapacityBuffers (L-42) and PodGroups (L-39); teams without money (L-16); and
images that new nodes pull first (L-43). And what must hold of them."""

from __future__ import annotations

import json
import random
import typing as t
from datetime import datetime, timedelta

from sandbox import capacity_buffers, pod_groups
from sandbox import provisioning_requests as kueue
from sandbox.world import Machine

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Call, Json, Sight
    from .stage import Stage

REQUEST, BUFFER, TEAM, IMAGES = "ProvisioningRequest", "CapacityBuffer", "team without money", "image pulled first"
PRE_PULL, TEAM_MARK = "prePull", "stories.example/team"
FIELDS = (PRE_PULL, "provisioningClasses", "capacityBuffers")  # of the pool, which lines of this file set
_TEMPLATES = "/api/v1/namespaces/default/podtemplates"
PULLS_FOR = timedelta(seconds=600)
_SHORTEST_JOIN = timedelta(seconds=900)  # own machines
_SLACK = timedelta(seconds=125)
_SPEC: Json = {
    "tolerations": [{"operator": "Exists"}],
    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
}


# ---- what lines do


def install(stage: Stage, manifest: Json) -> None:
    """The definition of a kind, once."""
    if manifest["metadata"]["name"] not in stage.sight.installed:
        stage.sight.installed.add(manifest["metadata"]["name"])
        stage.kube("POST", kueue.DEFINITIONS, manifest)


def request(stage: Stage, name: str, pods: int) -> None:
    """As Kueue makes it, of a class that rents."""
    install(stage, kueue.manifest())
    _set(stage, "provisioningClasses", ["tgp.io/atomic"])
    stage.adverse.words[name] = REQUEST
    stage.kube("POST", _TEMPLATES, kueue.template(name, _SPEC))
    stage.kube("POST", kueue.path("default"), kueue.request(name, pods, "tgp.io/atomic"))


def buffer(stage: Stage, name: str, pods: int) -> None:
    install(stage, capacity_buffers.manifest())
    _set(stage, "capacityBuffers", True)
    stage.adverse.words[name] = BUFFER
    stage.kube("POST", _TEMPLATES, kueue.template(name, _SPEC))
    stage.kube("POST", capacity_buffers.path("default"), capacity_buffers.buffer(name, replicas=pods))


def group(stage: Stage, name: str, least: int) -> None:
    install(stage, pod_groups.manifest())
    stage.kube("POST", pod_groups.path("default"), pod_groups.group(name, least))


def admit(stage: Stage, _rest: str) -> None:
    """The pods come of every request that has its machines."""
    for found in stage.sight.requests().values():
        name, told = found["metadata"]["name"], kueue.conditions(found)
        if told.get("Provisioned", ("",))[0] == "True" and stage.sight.pod("default", f"{name}-0") is None:
            for body in kueue.pods(name, found["spec"]["podSets"][0]["count"], _SPEC):
                body["metadata"]["annotations"]["sandbox/run-seconds"] = "1800"
                stage.kube("POST", "/api/v1/namespaces/default/pods", body)


def team(stage: Stage, _rest: str) -> None:
    """From now on team red has less money than any machine costs."""
    stage.options["team_budgets"] = [{"team": "red", "period": "day", "amount": "0.01", "time_zone": "UTC", "soft_percent": 80}]
    stage.adverse.words["limit:budget.team"] = TEAM


def _set(stage: Stage, field: str, value: t.Any) -> None:
    if stage.training.get(field) != value:
        stage.sight.note_documents()
        stage.training[field] = value


def pull(stage: Stage, images: str) -> None:
    """``change prePull there`` or, where one cannot be pulled, ``change prePull there,missing``."""
    _set(stage, PRE_PULL, {"images": [f"registry.example/{one}:1" for one in images.split(",")], "timeout": "10m"})
    stage.sight.pulls_since = stage.clock.now()
    stage.adverse.words |= {"images first, up to": IMAGES, "image first, up to": IMAGES, "these images are pulled": IMAGES}


def end(stage: Stage) -> None:
    """Nobody asks for anything any more."""
    stage.options.pop("team_budgets", None)
    for field in FIELDS:
        stage.training.pop(field, None)
    for found, path in ((stage.sight.requests(), kueue.path), (stage.sight.buffers(), capacity_buffers.path)):
        for name in found:
            stage.api.request("DELETE", path("default", name))


LINES: dict[str, t.Callable[[Stage, str], None]] = {"admit": admit, "team": team}


# ---- the invariants


def I35_room_that_is_told_is_there(sight: Sight, call: Call) -> str:
    """A request is Provisioned by complete machines that have a GPU for each of its pods; a buffer fits where as many GPUs are shown."""
    if call.method != "PATCH" or not call.path.endswith("/status") or not 200 <= call.status < 300:
        return ""
    name = call.path.split("/")[-2]
    status = (json.loads(call.body).get("status") or {}) if "autoscaling.x-k8s.io" in call.path else {}
    told = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if "/provisioningrequests/" in call.path and told.get("Provisioned") == "True":
        found = sight.requests().get(name)
        named = set(str((status.get("provisioningClassDetails") or {}).get("tgp.io/machines", "")).split(","))
        if found is None or "BookingExpired" in told or "CapacityRevoked" in told:
            return ""
        come = [one for one in sight.pods() if (one["metadata"].get("annotations") or {}).get(kueue.CONSUMES) == name]
        wanted, have = found["spec"]["podSets"][0]["count"] - len(come), _gpus(sight, named)
        return f"request {name} is Provisioned for {wanted} pods on {have} GPUs of {sorted(named)}" if have < wanted else ""
    if "/capacitybuffers/" in call.path and told.get("Provisioning") == "True":
        found = sight.buffers().get(name)
        wanted, have = (found["spec"].get("replicas") or 0) if found else 0, _gpus(sight, None)
        return f"buffer {name} of {wanted} pods fits on {have} GPUs" if have < wanted else ""
    return ""


def _gpus(sight: Sight, names: set[str] | None) -> int:
    """Of machines that are complete, or were until something struck them."""
    found = [one for one in sight.made() if names is None or one.name in names]
    return sum(sight.rented(one) for one in found if "struck" in one.details or one.ended is not None or sight.is_complete(one))


def I36_a_node_pulls_its_images_first(sight: Sight, call: Call) -> str:
    """A node that takes pods has been made to pull, and does so no more, unless its time is over or nobody could make it."""
    if sight.pulls_since is None or call.service != "kubernetes":
        return ""
    if "/tgp-system/pods" in call.path:
        sight.pull_asked |= {one.name for one in sight.made() if f"{one.name}-pre-pull" in call.body}
        if call.struck or not 200 <= call.status < 300:
            sight.pull_disturbed = True  # a pod that is refused, or not seen, is done without
    if sight.pull_disturbed or call.method != "PATCH":
        return ""
    for one in sight.living():
        if one.name not in sight.pull_judged and sight.is_complete(one) and not sight.is_cordoned(one.name):
            sight.pull_judged.add(one.name)
            if why := _opened_early(sight, one):
                return why
    return ""


def _opened_early(sight: Sight, one: Machine) -> str:
    known = one.name in sight.claims() and one.name not in sight.forgotten
    if not known or not is_asked(sight, one) or sight.now - one.created >= _SHORTEST_JOIN + PULLS_FOR - _SLACK:
        return ""
    if one.name not in sight.pull_asked:
        return f"{one.name} takes pods, and nothing made it pull"
    pod = sight.pod("tgp-system", f"{one.name}-pre-pull") or {}
    states = [state.get("state") or {} for state in (pod.get("status") or {}).get("containerStatuses") or ()]
    pulling = [one for one in states if (one.get("waiting") or {}).get("reason") == "ContainerCreating"]
    made = (pod.get("metadata") or {}).get("creationTimestamp", "")
    over = bool(made) and sight.now - datetime.fromisoformat(made.replace("Z", "+00:00")) >= PULLS_FOR - _SLACK
    if pod and not over and pod.get("status", {}).get("phase") == "Pending" and (pulling or not states):
        return f"{one.name} takes pods while it pulls"
    return ""


def is_asked(sight: Sight, machine: Machine) -> bool:
    """Whether its pool named images before it was rented."""
    since = sight.pulls_since
    return since is not None and machine.created > since and all(PRE_PULL in spec for spec in sight.told(machine))


CHECKS: dict[str, t.Callable[[Sight, Call], str]] = {
    "I-35": I35_room_that_is_told_is_there,
    "I-36": I36_a_node_pulls_its_images_first,
}


# ---- chance


def scenes(ground: Ground, dice: random.Random) -> dict[str, list[str]]:
    """One for each ingredient."""
    begin = dice.choice(([], [], ["run provision nodes=1"]))
    pods = dice.choice((1, 2, 2, 3))
    kill = f" kill={int(dice.triangular(10, 110, 45))}{dice.choice(('', ' after'))}" if dice.random() < 0.4 else ""
    looks = ["rest 30", f"run autoscale{kill}", "rest 70", "run autoscale"]
    slow = json.dumps({"kind": "slow_pull", "seconds": dice.choice((60, 400, 900)), "times": 1})
    bad = json.dumps({"kind": dice.choice(("image_missing", "test_evicted")), "times": 1})
    found = {
        TEAM: ["team red", *begin, f"ask team {pods}", *dice.choice(([], ["demand 1"])), *looks, "rest 660", "run reap"],
        IMAGES: [
            *begin,
            f"change {PRE_PULL} {dice.choice(('there', 'there,too', 'there,missing', 'broken'))}",
            *dice.choice(([], [f"behave {slow}"], [f"behave {slow}"], [f"behave {bad}"])),
            f"run provision nodes=2{kill}",
            "rest 70",
            *dice.choice((["run provision nodes=2"], ["run autoscale"], ["run reap", "rest 70", "run provision nodes=2"])),
        ],
    }
    if not ground.dra and ground.instances == 1:  # what these ask for are GPUs by the name of their resource
        found[REQUEST] = [
            *begin,
            f"ask request {pods}",
            *looks,
            *dice.choice((["admit", "rest 40", "run autoscale"], ["rest 660", "run autoscale"], ["run reap"])),
            *dice.choice(([], ["rest 1900", "run reap"])),
        ]
        found[BUFFER] = [
            *begin,
            f"ask buffer {pods}",
            *looks,
            *dice.choice((["demand 1", "rest 40", "run autoscale"], ["rest 660", "run reap"], ["rest 660", "run autoscale"])),
        ]
    return found
