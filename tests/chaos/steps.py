# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can happen in a story, one line each. Lines speak of things by number, modulo how many there are, so that a story from which lines
were taken out is still one.

    run provision nodes=2 kill=17 after   a run that dies at its 17th call, after the call's effect
    race provision nodes=1 | reap         two runs at once: on the same host, or (``host=b``) on two
    run provision nodes=1 pool=batch      for the second pool, where there is one
    run loop looks=4                      autoscale.yml as a loop that ends after so many looks
    rest 600, jump 600                    time passes; the clock leaps
    fault {json}, clear                   a rule of sandbox/faults.py; all rules end
    behave {json}, strike dies 0          how machines fare from now on; what befalls the first living one
    price 1 1.5, stock 0 0                an offer costs half as much more; there is none of it left
    pod 0 busy | guarded | short          work on the first node; what no budget lets go; what ends after a minute
    demand 2                              so many pods wait for a GPU each
    done, hold 0, min 1, forget 0         all work ends; a hold on a node; minNodes; somebody removes a claim by hand
    pod 0 claim | spread | affinity | grace   work that holds its GPU by ResourceClaim, is bound to its place, or takes an hour to end
    foreign machine 0 stamped             somebody else's machine (device, Node) under a name of ours; ``unstamped``: it does not say whose
    module 0, module 0 ours               a module for one machine is asked for the name of somebody else's in check mode; of ours, for real
    outage lambda 3600, slowness hang vast 120   a service answers nothing but 503 for an hour; three answers take so long, or never come
    slowness drip lambda 900                three answers come in small pieces, over so long
    refuse conflict /configmaps/tgp- 3    the cluster refuses so many writes there: conflict (409), invalid (422), kube-5xx
    skew b 7200                           the clock of a host is so many seconds ahead
    revoke lambda, renew lambda           a key is worth nothing any more; it is valid again
    lag vast 60                           its list shows a new machine so many seconds late
    record damaged 0, terminate 0         a claim cannot be read (``immutable``: not be changed); a person asks for the end of a node
    gpus 0 1                                a node shows one GPU fewer than before
    change expireAfter 30m                the pool's document says something else (``deleteStoppedAfter 20m`` of own machines)
    documents cluster                     they stand in the cluster as objects (``file``: in one file; without the line: in a folder)
    document vanish training              it goes from its source (``yaml``, ``field``: it cannot be read, has a wrong field; ``return``)
    document appear request               a document that was not there before: a GPURequest; ``pool``: a pool with a class of its own
    document keep training                from now on machines stay when their document goes (orphanedPolicy)
    twin empty, twin restored             a second cluster with the same id, whose runs say ``host=t``
    source empty, source return           the source holds no document; all are there again (``missing``: no folder, no file, no definitions)
    pod 0 system | bare                   a GPU pod of the system's; a pod that nobody makes anew
    limits 3 10.00 8                      of the class: machines, dollars an hour, GPUs (else by chance)
    still                                 calls take no time from now on
    at made 0 1800                        it is so many seconds after a machine was made; ``clock 18:00:00``; ``node KEY 600`` after a mark of
                                          the first Node; ``claim FIELD 600``; ``lease 900`` after the holder of the run lock was last heard of
    mark 0 tgp.io/hold-until=…            an annotation of a Node; without a value it goes
    spec pool {json}                      the document of the pool (``class``) says this besides
    ask gang jobset 3                     pods of a gang wait; ``lws 3 4``: three of the four that it has exist. See workloads.ask for others
    bills 0 0.525 0.50                    an offer costs the first price and shows the second
    expect living 1                       what has to be so at this moment (I-25); edges.TRUTHS lists what else may stand there
    pause training, resume                a person pauses a pool (``demo``: a class; ``all``); every pause ends
    hand 0                                an owner switches on the first own machine that is off and that no claim names
    claims objects                        claims are GPUNodeClaim objects (claim_store: crd)
    gncl 0                                a person deletes such an object
    document delete training              as ``vanish``; an object of the cluster is deleted, and stays for its finalizers
    mesh wireguard, run migrate wait      machines of the first class enter that mesh; they move (``wait``: a pass waits for their joins)
    guard 2h Never, silence 10800         silentFor and controllerSilentFor of all classes; nobody runs anything for so long
    lifetime 2                            Google deletes new machines after so many hours
    box lambda, run adopt, joins 0        somebody rents a machine by hand; it is taken in; it becomes a Node
    run release nodes=1                   one of our machines is handed out
    budget class 1.80 drain_all 3         of pool, class or all; so much a day, which begins at three; what is done when it is used up
"""

from __future__ import annotations

import json
import random
import re
import typing as t
from decimal import Decimal

from sandbox.behaviour import Behaviour

from . import adverse, edges, images, migrating, moving, objects, own, pauses, purse, queues, silence, sources, trials, workloads
from .grounds import Ground
from .stage import Order, Outcome, Stage


def parse_order(text: str) -> Order:
    playbook, *words = text.split()
    given = dict(word.partition("=")[::2] for word in words if "=" in word)
    return Order(
        playbook,
        int(given.get("nodes", 1)),
        int(given.get("kill", 0)),
        "after" in words,
        given.get("host", "a"),
        "check" in words,
        given.get("pool", "training"),
        int(given.get("looks", 3)),
        "wait" in words,
    )


def play(stage: Stage, line: str) -> list[Outcome]:
    """Let one line happen; the runs it told of."""
    what, _space, rest = line.strip().partition(" ")
    if what in ("run", "race"):
        return stage.perform(*(parse_order(one) for one in rest.split("|")))
    _WORLD[what](stage, rest)
    return []


_TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
_ZONE = {**_TERM, "topologyKey": "topology.kubernetes.io/zone"}
_BOUND: dict[str, dict[str, t.Any]] = {
    "claim": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
    "spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": _TERM["labelSelector"],
                "topologyKey": _TERM["topologyKey"],
            }
        ]
    },
    "affinity": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_ZONE]}}},
    "grace": {"terminationGracePeriodSeconds": 3600},
}


def _pod(stage: Stage, rest: str) -> None:
    place, kind = rest.split()
    nodes = stage.sight.places()
    if not nodes:
        return
    node, name = nodes[int(place) % len(nodes)], f"job-{stage.loom.dice.getrandbits(40):010x}"
    notes = {"short": {"sandbox/run-seconds": "60"}, "pulling": {"sandbox/pull-seconds": "1800"}}.get(kind, {})
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": True}]
    owner = [] if kind == "bare" else owner
    spec: dict[str, t.Any] = {
        "nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}],
        "terminationGracePeriodSeconds": 30,
    }  # fmt: skip
    if kind in _BOUND:
        spec |= _BOUND[kind]
        stage.adverse.words[name] = f"pod with {kind}"
    if kind == "pulling":
        stage.adverse.words[name] = workloads.PULLING
    if kind == "system":
        spec["containers"][0]["resources"] = {"limits": {stage.ground.resource: "1"}}
    meta = {"name": name, "labels": {"app": name}, "annotations": notes, "ownerReferences": owner}
    namespace = "kube-system" if kind == "system" else "default"
    stage.kube("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": spec})
    if kind == "guarded":
        stage.sight.guarded[name] = 30
        guard = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}}
        stage.kube("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", guard)


def _demand(stage: Stage, rest: str) -> None:
    workloads.ask_plain(stage, int(rest))


def _done(stage: Stage, _rest: str) -> None:
    for pod in stage.kube("GET", "/api/v1/namespaces/default/pods")["items"]:
        if pod["metadata"]["name"] not in stage.sight.guarded:
            stage.api.request("DELETE", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def _hold(stage: Stage, rest: str) -> None:
    nodes = stage.sight.places()
    if nodes:
        mark = {"metadata": {"annotations": {"tgp.io/do-not-disrupt": "true"}}}
        stage.kube("PATCH", f"/api/v1/nodes/{nodes[int(rest) % len(nodes)]}", mark)


def _strike(stage: Stage, rest: str) -> None:
    kind, place = rest.split()
    living = stage.sight.living()
    if living:
        stage.box.machines.strike(living[int(place) % len(living)], kind)


def _stock(stage: Stage, rest: str) -> None:
    place, number = map(int, rest.split())
    stage.world.offers[place % len(stage.world.offers)].stock = number


def _behave(stage: Stage, rest: str) -> None:
    """The machine that its owner works on boots when a story begins, and fares well."""
    stage.box.machines.behaviours.add(Behaviour.parse({"name": f"^(?!{own.IN_USE}$)", **json.loads(rest)}))


def _price(stage: Stage, rest: str) -> None:
    place, factor = rest.split()
    stage.price(int(place), Decimal(factor))


def _forget(stage: Stage, rest: str) -> None:
    names = sorted(stage.sight.claims())
    if names:
        name = names[int(rest) % len(names)]
        stage.sight.forgotten.add(name)
        stage.sight.unbooked.add(name)
        stage.remove_record(name)


def _min(stage: Stage, rest: str) -> None:
    stage.sight.note_documents()
    stage.training["minNodes"] = int(rest)


def _budget(stage: Stage, rest: str) -> None:
    stage.give(purse.Purse.parse(rest))


_WORLD: dict[str, t.Callable[[Stage, str], None]] = {
    "rest": lambda stage, rest: stage.rest(float(rest)),
    "jump": lambda stage, rest: stage.advance(float(rest)),
    "fault": lambda stage, rest: (stage.faults.add(json.loads(rest)), None)[1],
    "clear": lambda stage, _rest: stage.faults.clear(),
    "behave": _behave,
    "strike": _strike,
    "price": _price,
    "stock": _stock,
    "pod": _pod,
    "demand": _demand,
    "done": _done,
    "hold": _hold,
    "min": _min,
    "forget": _forget,
    "budget": _budget,
    "hand": lambda stage, rest: own.by_hand(stage, int(rest)),
    **adverse.LINES,
    **pauses.LINES,
    **edges.LINES,
    **objects.LINES,
    **workloads.LINES,
    **queues.LINES,
    **migrating.LINES,
    **silence.LINES,
    **moving.LINES,
    **images.LINES,
}


# ---- chance

PLAYBOOKS = ("autoscale",) * 3


def fault(ground: Ground, dice: random.Random) -> str:
    """Something that goes wrong between us and a cloud, the mesh or the cluster."""
    part = dice.choice(ground.clouds())
    lists, files = part.lists, "directory" in ground.beside()
    service, method, path, rule = dice.choice(
        [(part.cloud, *part.create, rule) for rule in _CREATE]
        + [(part.cloud, *part.destroy, rule) for rule in _DESTROY]
        + [(part.cloud, "GET", lists, rule) for rule in _LIST]
        + [(part.cloud, "", part.offers, {"kind": "status", "status": 500})]
        + [
            (service, "", dice.choice(ground.mesh_calls), rule)
            for service in ground.beside()[:1]
            for rule in _ANY[: 3 if ground.has_hub() else None]
        ]
        + [
            ("kubernetes", method, where, rule)
            for method, where in _KUBE
            for rule in _ANY[:4]
            if not files or where[1:7] != "config"
        ]
        + [("directory", method, where, rule) for method, where in _FILES * files for rule in _ANY[:3:2]]
    )
    rule = {"service": service, "method": method, "path": path, "after_calls": dice.choice((0, 0, 0, 1, 2)), **rule}
    return "fault " + json.dumps({**rule, "times": dice.choice((1, 1, 1, 2, 4))})


_CREATE: list[dict[str, t.Any]] = [
    {"kind": "lost_before"},
    {"kind": "lost_after"},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 400, "body": {"error": "no capacity"}},
    {"kind": "status_after", "status": 502},
    {"kind": "status", "status": 429},
    {"kind": "truncate"},
    {"kind": "drip", "seconds": 100},
    {"kind": "body", "body": {"surprise": True}},
]
_DESTROY: list[dict[str, t.Any]] = [
    {"kind": "lost_before"},
    {"kind": "lost_after"},
    {"kind": "status", "status": 500},
    {"kind": "status_after", "status": 503},
    {"kind": "status", "status": 429, "headers": {"Retry-After": "7"}},
]
_LIST: list[dict[str, t.Any]] = [
    {"kind": "status", "status": 502},
    {"kind": "body", "body": []},
    {"kind": "truncate"},
    {"kind": "stale"},
    {"kind": "lost_before"},
    {"kind": "body", "body": "<html>maintenance</html>"},
]
_ANY: list[dict[str, t.Any]] = [
    {"kind": "status", "status": 503},
    {"kind": "lost_before"},
    {"kind": "lost_after"},
    {"kind": "truncate"},
    {"kind": "stale"},
]
_KUBE = [
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/pods"),
    ("", "/configmaps"),
    ("PUT", "/configmaps/tgp-claim"),
    ("", "/leases"),
    ("DELETE", "/api/v1/"),
    ("PATCH", "/api/v1/nodes"),
    ("POST", "/secrets"),
    ("POST", "/eviction"),
]
_FILES = [("", "/claims"), ("PUT", "/claims/"), ("", "/ledger"), ("PUT", "/ledger/"), ("PUT", "/state/"), ("DELETE", "/claims/")]
_BEHAVE = ("never_boots", "boot_error", "dies", "crash", "vanish", "never_ready", "gpu_missing", "slow", "mesh_fails")


def draw(ground: Ground, seed: str) -> list[str]:
    """A story: some ten lines, most of them runs."""
    dice = random.Random(f"story {seed}")
    nodes, lines = "service" not in ground.cloud and not ground.pool, list[str]()
    for _number in range(dice.randint(3, 6)):
        lines += [_event(ground, dice, nodes) for _one in range(dice.choice((0, 1, 1, 2)))]
        lines.append(_run(dice, ground))
        lines.append(f"{dice.choice(('rest', 'rest', 'jump'))} {dice.choice((5, 70, 300, 660, 660, 1900))}")
    source, as_objects = random.Random(f"documents {seed}").choice(sorted(sources.SOURCES)), objects.are_drawn(ground, seed)
    scenes = objects.instead(adverse.draw(ground, seed, nodes), ground, seed, claims=as_objects, documents=source == "cluster")
    for scene in scenes:
        place = dice.randrange(len(lines) + 1)
        lines[place:place] = scene
    lines[:0] = adverse.lags(ground, seed)
    for scene, place in adverse.appear(ground, seed, nodes):
        lines[int(place * len(lines)) : int(place * len(lines))] = scene
    scene, place = _loop(ground, random.Random(f"loop {seed}"), nodes)
    lines[int(place * len(lines)) : int(place * len(lines))] = scene
    scene, place = trials.draw(ground, seed, nodes)
    lines[int(place * len(lines)) : int(place * len(lines))] = scene
    scene, place = own.draw(ground, seed)
    lines[int(place * len(lines)) : int(place * len(lines))] = scene
    coins = random.Random(f"budget {seed}")
    if ground.budgets and coins.random() < 0.4:
        line = f"budget {coins.choice(purse.SCOPES)} {coins.choice(ground.budgets)} {coins.choice(purse.ACTIONS)} {coins.randint(1, 4)}"
        lines.insert(coins.randrange(len(lines)), line)
    lines = objects.drawn(lines, seed, claims=as_objects)
    lines.insert(0, f"documents {source}")
    return lines if ground.two_hosts else [_on_host_a(one) for one in lines]


def draw_small(ground: Ground, seed: str) -> list[str]:
    """A story of one or two scenes alone, in which something may happen between and a run may be killed: many fit into the time of one."""
    dice = random.Random(f"small {seed}")
    nodes, lines = "service" not in ground.cloud and not ground.pool, [f"limits {dice.choice((2, 3, 4))} 10.00 8"]
    for scene in adverse.few(ground, seed, nodes):
        lines += [*([_event(ground, dice, nodes)] if dice.random() < 0.3 else []), *scene]
    runs = [place for place, line in enumerate(lines) if line.startswith("run ") and "kill=" not in line and "check" not in line]
    if runs and dice.random() < 0.3:
        lines[dice.choice(runs)] += f" kill={dice.randint(5, 70)}{dice.choice(('', ' after'))}"
    return [one if ground.two_hosts else _on_host_a(one) for one in lines]


def _on_host_a(line: str) -> str:
    return re.sub(r"( host=b\b|(?<=skew) b)", lambda found: found[1].replace("b", "a"), line)


def _loop(ground: Ground, dice: random.Random, nodes: bool) -> tuple[list[str], float]:
    """A loop in three of ten stories, and where in it; tasks of playbooks tell a hub, and a loop has none."""
    if ground.has_hub() or dice.random() >= 0.3:
        return [], 0.0
    text = f"loop looks={dice.choice((3, 5, 8))}"
    kill = f" kill={int(dice.triangular(1, 160, 40))}{dice.choice(('', ' after'))}" if dice.random() < 0.3 else ""
    line = f"race {text} | {dice.choice(('provision nodes=2', 'reap'))} host=b" if dice.random() < 0.2 else f"run {text}{kill}"
    begin = [f"demand {dice.choice((1, 2))}"] if nodes else ["min 1"]
    return [*begin, line, *dice.choice(([], ["done", f"run {text}"]))], dice.random()


def _order(dice: random.Random, ground: Ground) -> str:
    playbook = dice.choice(("provision",) * 4 + ("reap",) * 3 + PLAYBOOKS + ("destroy", "plan", "apply", "apply"))
    if playbook not in ("provision", "plan"):
        return playbook
    pool = f" pool={dice.choice(ground.pools)}" if len(ground.pools) > 1 else ""
    return f"{playbook} nodes={dice.choice((1, 1, 2, 3, 4))}{pool}"


def _run(dice: random.Random, ground: Ground) -> str:
    chance = dice.random()
    if chance < 0.06:
        return f"run {_order(dice, ground)} check"
    if chance < 0.18:
        return f"race {_order(dice, ground)} | {_order(dice, ground)}{dice.choice(('', ' host=b', ' host=b'))}"
    kill = f" kill={int(dice.triangular(1, 110, 25))}{dice.choice(('', ' after'))}" if chance < 0.45 else ""
    return f"run {_order(dice, ground)}{kill}{dice.choice(('', '', '', ' host=b'))}"


def _event(ground: Ground, dice: random.Random, nodes: bool) -> str:
    number = dice.randrange(4)
    menu: list[t.Callable[[], str]] = [lambda: fault(ground, dice)] * 9
    menu += [lambda: "clear"]
    if ground.has_own():  # without prices that move and stock
        menu += [lambda: f"hand {number}"] * 2
    else:
        menu += [lambda: f"price {number} {dice.choice(('0.5', '0.9', '1.2', '3.0', '20'))}"]
        menu += [lambda: f"stock {number} {dice.choice((0, 0, 1))}"]
    menu += [
        lambda: f"strike {dice.choice(('dies', 'crash', 'vanish'))} {number}",
    ]
    menu += [lambda: "behave " + json.dumps({"kind": dice.choice(_BEHAVE), "times": 1, "seconds": dice.choice((5, 30, 400))})]
    menu += [lambda: f"min {dice.choice((0, 1, 2))}", lambda: f"forget {number}"]
    if nodes:
        menu += [lambda: f"pod {number} {dice.choice(('busy', 'guarded', 'short'))}"] * 3
        menu += [lambda: "done", lambda: f"hold {number}"] + [lambda: f"demand {dice.choice((1, 1, 2, 4))}"] * 3
    return dice.choice(menu)()
