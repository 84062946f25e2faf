# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories that stand exactly on the edge of a rule: at the second, the dollar or the number that its worked numbers (L-1 to L-30) name.

Their lines say what must be true in the world at that moment (``expect``, I-25). Calls take no time in them (``still``), so that a run
begins in the very second that ``at`` names.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

if t.TYPE_CHECKING:
    from .stage import Stage


@dataclasses.dataclass(frozen=True)
class Edge:
    """On which ground the story is played, and its lines, separated by semicolons."""

    ground: str
    text: str

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.text.split(";"))


# ---- what lines do


def _still(stage: Stage, _rest: str) -> None:
    stage.quick = True
    _to(stage, stage.clock.now().replace(microsecond=0) + timedelta(seconds=1))


def _to(stage: Stage, moment: datetime) -> None:
    """Time passes until then; none when it is past."""
    stage.rest(max(0.0, (moment - stage.clock.now()).total_seconds()))


def _at(stage: Stage, rest: str) -> None:
    """So many seconds after something, in whole seconds: a time of day, the birth of the n-th machine, a mark of a Node, a time in a claim, the
    last create call, or the last sign of who holds the run lock."""
    what, *words = rest.split()
    now = stage.clock.now()
    if what == "clock":
        hour, minute, second = (int(one) for one in words[0].split(":"))
        moment, seconds = now.replace(hour=hour, minute=minute, second=second, microsecond=0), 0.0
    else:
        seconds = float(words[-1])
        if what == "made":
            moment = stage.sight.made()[int(words[0])].created
        elif what == "create":
            moment = stage.created_at
        elif what == "lease":
            _to(stage, _moment(stage.lease()["spec"]["renewTime"]) + timedelta(seconds=seconds))
            return  # kept to the microsecond
        elif what == "node":
            moment = _moment(_marks(stage)[words[0]])
        else:
            claim = next(iter(sorted(stage.sight.claims().items())))[1]
            moment = _moment((claim.get("deletion") or {}).get(words[0]) or claim[words[0]])
    _to(stage, moment.replace(microsecond=0) + timedelta(seconds=seconds))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


def _marks(stage: Stage) -> dict[str, str]:
    """Annotations of our first Node."""
    return stage.sight.nodes()[_nodes(stage)[0]]["metadata"].get("annotations") or {}


def _nodes(stage: Stage) -> list[str]:
    return sorted(name for name in stage.sight.nodes() if stage.sight.ours(name))


def _mark(stage: Stage, rest: str) -> None:
    place, text = rest.split(" ", 1)
    key, _equals, value = text.partition("=")
    names = _nodes(stage)
    if names:
        name = names[int(place) % len(names)]
        stage.kube("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {key: value or None}}})
        if key == "tgp.io/terminate":
            stage.sight.asked.add(name)


def _spec(stage: Stage, rest: str) -> None:
    """The document of the pool or the class says this besides, until nothing is wrong any more."""
    kind, text = rest.split(" ", 1)
    stage.sight.note_documents()
    spec = {"pool": stage.training, "class": stage.demo_class}[kind]
    stage.plain.setdefault(kind, copy.deepcopy(spec))
    for key, value in json.loads(text).items():
        spec[key] = {**spec[key], **value} if isinstance(value, dict) and isinstance(spec.get(key), dict) else value


def restore(stage: Stage) -> None:
    """Documents say what they said in the beginning, and calls take their time."""
    for kind, spec in stage.plain.items():
        now = {"pool": stage.training, "class": stage.demo_class}[kind]
        now.clear()
        now.update(spec)
    stage.plain.clear()
    stage.quick = False


def _bills(stage: Stage, rest: str) -> None:
    """An offer shows one price and costs another."""
    place, real, shown = rest.split()
    offers = stage.world.offers
    old = offers[int(place)]
    offers[int(place)] = dataclasses.replace(old, price_hour=Decimal(real), details={**old.details, "shown_price": Decimal(shown)})


LINES: dict[str, t.Callable[[Stage, str], None]] = {
    "limits": lambda _stage, _rest: None,  # read when the story begins
    "still": _still,
    "at": _at,
    "mark": _mark,
    "spec": _spec,
    "bills": _bills,
}


# ---- what must be so (I-25)


def _tokens(stage: Stage) -> int:
    return len(stage.tokens())


def _unbilled(stage: Stage) -> Decimal:
    """Dollars, to the cent, that the world billed for ended machines and the ledger does not have."""
    machines = stage.sight.by_id()
    ids = [(one, line) for line in stage.sight.ledger() for one in line["ids"]]
    theirs = sum((machines[one].cost(stage.clock.now()) for one, _line in ids), Decimal(0))
    ours = sum((Decimal(line["cost"]) for line in stage.sight.ledger()), Decimal(0))
    return max(Decimal(0), theirs - ours).quantize(Decimal("0.01"))


TRUTHS: dict[str, t.Callable[[Stage], t.Any]] = {
    "living": lambda stage: len(stage.sight.living()),
    "made": lambda stage: len(stage.sight.made()),
    "creates": lambda stage: stage.sent["create"],
    "destroys": lambda stage: stage.sent["destroy"],
    "pods": lambda stage: len(stage.kube("GET", "/api/v1/namespaces/default/pods")["items"]),
    "nodes": lambda stage: len(_nodes(stage)),
    "tokens": _tokens,
    "claims": lambda stage: len(stage.sight.claims()),
    "held": lambda stage: int(bool(stage.sight.holder())),
    "unbilled": _unbilled,
    "types": lambda stage: ",".join(sorted(one.offer.type for one in stage.sight.living())),
}


def I25_worked_numbers_are_so(truth: str, wanted: str, found: t.Any) -> str:
    """On the edge of a rule the world is as the rule's worked numbers say."""
    return "" if str(found) == wanted else f"{truth} is {found}, and has to be {wanted}"


def _expect(stage: Stage, rest: str) -> None:
    truth, wanted = rest.split()
    if problem := I25_worked_numbers_are_so(truth, wanted, TRUTHS[truth](stage)):
        stage.broken.append(f"I-25: {problem} at {stage.clock.now():%H:%M:%S}")


LINES["expect"] = _expect

# ---- the stories

_IDLE = "at node tgp.io/idle-since 600; run reap"  # ten minutes after the node was first seen idle
_FIRST = "still; run provision nodes=1; rest 660; run reap"  # a node that is ten minutes old, and idle from now on
EDGES: dict[str, Edge] = {
    "idle": Edge("lambda", f"{_FIRST}; at node tgp.io/idle-since 599; run reap; expect living 1; {_IDLE}; expect living 0"),
    "expired": Edge(
        "lambda",
        "still; min 1; change expireAfter 30m; run provision nodes=1; at made 0 1799; run reap; expect living 1; at made 0 1800; run reap; "
        "expect living 0",
    ),
    "replaced before it expires": Edge(
        "lambda",
        "still; min 1; change expireAfter 30m; run provision nodes=1; at made 0 1499; run autoscale; expect living 1; at made 0 1500; "
        "run autoscale; expect living 2; at made 1 120; run autoscale; rest 30; run autoscale; at made 0 1799; run autoscale; "
        "expect living 2; at made 0 1800; run autoscale; expect living 1",
    ),
    "expired and held": Edge(
        "lambda",
        "still; min 1; change expireAfter 30m; run provision nodes=1; hold 0; at made 0 2399; run reap; expect living 1; at made 0 2400; "
        "run reap; expect living 0",
    ),
    "hold until": Edge(
        "lambda",
        f"{_FIRST}; mark 0 tgp.io/hold-until=2026-01-01T01:00:00Z; at clock 00:59:59; run reap; expect living 1; at clock 01:00:00; run reap; "
        "expect living 0",
    ),
    "hold yes": Edge("lambda", f"{_FIRST}; mark 0 tgp.io/do-not-disrupt=yes; {_IDLE}; expect living 0"),
    "share of nodes": Edge(
        "lambda",
        'limits 3 10.00 8; still; spec pool {"disruption": {"budgets": [{"nodes": "50%"}]}}; run provision nodes=3; rest 660; run reap; '
        f"{_IDLE}; expect living 1",
    ),
    "GPU pod of the system": Edge("lambda", f"run provision nodes=1; pod 0 system; {'rest 660; run reap; ' * 3}expect living 1"),
    "lock at 900": Edge(
        "lambda",
        "still; run provision nodes=1; run reap host=b kill=20; at lease 900; run reap; expect held 1; at lease 901; run reap; expect held 0",
    ),
    "work after a drain": Edge(
        "lambda",
        "run provision nodes=1; rest 1300; run reap; rest 700; run reap kill=33 after; jump 660; pod 0 busy; run reap",
    ),
    "lock read twice": Edge("lambda", "still; run provision nodes=1; run reap host=b kill=20; at lease 960; run reap"),
    "exact limits": Edge("lambda", "limits 2 1.38 2; run provision nodes=2; expect living 2"),
    "exact price": Edge("lambda", 'spec pool {"maxHourlyPrice": "0.69"}; run provision nodes=1; expect living 1'),
    "block of ten minutes": Edge(
        "lambda",
        'still; stock 1 0; fault {"service": "lambda", "method": "POST", "path": "/instance-operations/launch$", "kind": "status", '
        '"status": 400, "body": {"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity"}}}; '
        "run provision nodes=1; expect living 0; at create 590; run provision nodes=1; expect living 0; at create 605; "
        "run provision nodes=1; expect living 1",
    ),
    "end of office hours": Edge(
        "lambda",
        'still; spec pool {"calendar": {"windows": [{"from": "00:00", "to": "01:00", "minNodes": 1}]}}; run provision nodes=1; rest 660; '
        "run reap; at clock 00:59:59; run reap; expect living 1; at clock 01:00:00; run reap; expect living 0",
    ),
    "one sick node": Edge(
        "lambda", "min 1; run provision nodes=1; rest 660; strike crash 0; rest 1400; run reap; rest 70; run reap; expect living 0"
    ),
    "unknown create": Edge(
        "lambda",
        'still; fault {"service": "lambda", "method": "POST", "path": "/instance-operations/launch$", "kind": "lost_before"}; '
        "run provision nodes=1; expect creates 1; at claim unknown_since 600; "
        "run provision nodes=1; expect creates 2",
    ),
    "stamped stranger": Edge(
        "vast", "run provision nodes=1; foreign machine 1 stamped; jump 900; run reap; rest 70; run reap; rest 70; run reap"
    ),
    "unstamped stranger": Edge(
        "runpod", "run provision nodes=1; foreign machine 1 unstamped; jump 900; run reap; rest 70; run reap; rest 70; run reap"
    ),
    "token seen once": Edge(
        "lambda",
        'min 1; behave {"kind": "never_boots", "times": 9}; run autoscale; forget 0; rest 660; expect tokens 1; run reap; expect tokens 1; '
        "rest 70; run reap; expect tokens 0",
    ),
    "alive in the mesh": Edge(
        "lambda",
        'min 1; behave {"kind": "never_ready", "times": 9}; run autoscale; rest 600; '
        'fault {"service": "lambda", "method": "GET", "path": "/api/v1/instances$", "kind": "body", "body": {"data": []}, "times": 40}; '
        'fault {"service": "lambda", "method": "GET", "path": "/api/v1/instances/", "kind": "status", "status": 404, "times": 40, '
        '"body": {"error": {"code": "global/object-does-not-exist", "message": "Instance does not exist"}}}; '
        "run reap; rest 65; run reap; rest 65; run reap; expect claims 1",
    ),
    "five per cent more": Edge(
        # with $0.009452 for 69 GB of disk: offered for $0.509452, billed at $0.546 = 1.05 × $0.52
        "runpod", 'bills 0 0.536548 0.50; spec pool {"maxHourlyPrice": "0.52"}; run provision nodes=1; run reap; expect living 1'
    ),
    "started unit": Edge("lambda", "still; run provision nodes=1; at made 0 630; run destroy; expect unbilled 0.00"),
    "dearest first": Edge(
        "lambda-sizes",
        'limits 2 10.00 8; still; spec pool {"disruption": {"budgets": [{"nodes": "1"}]}}; run provision nodes=2; rest 660; run reap; '
        f"{_IDLE}; expect types gpu_2x_a6000",
    ),
    "scale-down-disabled": Edge(
        "lambda", f"{_FIRST}; mark 0 cluster-autoscaler.kubernetes.io/scale-down-disabled=true; {_IDLE}; expect living 1; "
        "mark 0 cluster-autoscaler.kubernetes.io/scale-down-disabled="
    ),
    "teardown": Edge("lambda", "run provision nodes=1; rest 660; run destroy; expect living 0"),
    "joined long ago": Edge("lambda", "min 1; run provision nodes=1; rest 1900; run reap; rest 70; run reap; expect living 1"),
    "floor": Edge("lambda", f"min 1; {_FIRST}; {_IDLE}; expect living 1"),
    "stranger of one name": Edge(
        "vast", "run provision nodes=1; foreign machine 0 unstamped; jump 900; run reap; rest 70; run reap; expect living 1"
    ),
    "second cluster": Edge(
        "lambda", f"min 1; run provision nodes=1; jump 900; twin empty; {'run reap host=t; rest 1300; ' * 3}run reap"
    ),
    "work without an owner": Edge(
        "lambda",
        'still; spec pool {"disruption": {"idleMode": "gpu"}}; run provision nodes=1; pod 0 bare; rest 660; run reap; '
        f"{_IDLE}; expect pods 1",
    ),
    "fourth failed join": Edge(
        "vast",
        'behave {"kind": "never_ready", "times": 9}; run provision nodes=1; run provision nodes=1; '
        "run provision nodes=1; run provision nodes=1; "
        "expect creates 3",
    ),
    "registration time": Edge(
        "lambda",
        'still; min 1; behave {"kind": "never_ready", "times": 9}; run autoscale; at made 0 1799; run reap; expect living 1; '
        "at made 0 1800; run reap; expect living 0",
    ),
    "half of all": Edge(
        "vast",
        "limits 4 10.00 8; run provision nodes=3; rest 660; strike crash 0; strike crash 1; strike crash 2; forget 0; forget 0; forget 0; "
        "rest 1400; run reap; rest 70; run reap; expect living 0",
    ),
    "ten minutes old": Edge(
        "lambda",
        "still; run provision nodes=1; strike crash 0; forget 0; at made 0 500; run reap; at made 0 600; run reap; expect living 1; "
        "at made 0 601; run reap; expect living 0",
    ),
    "orphan seen once": Edge(
        "vast", "run provision nodes=1; strike crash 0; rest 1400; forget 0; run reap; expect living 1; rest 70; run reap; expect living 0"
    ),
    "document seen missing": Edge(
        "runpod",
        "still; run provision nodes=1; rest 660; document vanish training; run reap; rest 599; run reap; expect living 1; rest 1; run reap; "
        "expect living 0",
    ),
    "source that cannot be read": Edge("runpod", f"run provision nodes=1; source empty; {'run reap; rest 330; ' * 4}expect living 1"),
    "stronger reason": Edge(
        "lambda",
        "min 1; change expireAfter 30m; run provision nodes=1; pod 0 guarded; mark 0 tgp.io/terminate=now; run reap; rest 1200; run reap; "
        "rest 660; run reap; expect living 0",
    ),
    "stopped machine": Edge(
        "own",
        "still; change deleteStoppedAfter 20m; run provision nodes=1; rest 70; run destroy; rest 120; run reap; "
        "at node tgp.io/stopped-since 1199; run reap; expect nodes 1; at node tgp.io/stopped-since 1200; run reap; expect nodes 0",
    ),
    "stopped machine in the dark": Edge(
        "own",
        "still; change deleteStoppedAfter 5m; run provision nodes=1; rest 70; run destroy; rest 120; run reap; rest 400; "
        'fault {"service": "webhook", "method": "GET", "path": "/status$", "kind": "status", "status": 503, "times": 99}; run reap; '
        "expect nodes 1; clear; run reap; expect nodes 0",
    ),
    "clock two hours ahead": Edge(
        "lambda", "min 1; change expireAfter 1h; run provision nodes=1; rest 660; skew b 7200; run reap host=b; expect living 1"
    ),
    "clock two hours behind": Edge("vast", "run provision nodes=1; rest 660; skew b -7200; run destroy host=b; expect living 0"),
}  # fmt: skip
