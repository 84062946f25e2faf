# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adverse world: ingredients of stories beyond single faults, and in how many runs each of them changed an action.

An ingredient counts for a run when the run met it and answered it: a call of the run was struck by it and the run repeated the call, told a
problem or ended with an error; or the plan, a result or a line of progress of the run speaks of the object that it put into the world. A
device or Node of somebody else changes an action by what is not done: a run counts that read the list fifteen minutes after it came and
removes such things of ours, where the device is offline and the Node not Ready.
A list that lags counts for a run that read it while a machine of ours existed that it did not show yet. A module for one machine counts when
it returned that of ours, or told of somebody else's.
"""

from __future__ import annotations

import random
import typing as t
from datetime import datetime, timedelta

from sandbox import lagging
from sandbox.faults import Fault

from ..contract.act.rig import secret_of
from . import (
    agents,
    images,
    migrating,
    modules,
    moving,
    objects,
    pauses,
    queues,
    silence,
    sources,
    strangers,
    switches,
    trials,
    workloads,
)

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Call
    from .stage import Outcome, Stage

LEAST = 50  # runs in a full search; an ingredient that changed less is not really there
_LISTED = {"foreign device": "tailscale", "foreign Node": "nodes"}
_OLD = timedelta(seconds=900)  # a device or Node of ours without a machine is removed by then (L-12)
# Twice as often as other scenes, for they often change nothing.
_RARE = ("pod with", "slow", "hang", "conflict", "document that goes", "changed document", "single module")
_SOME = "node that loses some GPUs"
_OF_ACCOUNTS = ("lagging list", "foreign machine", "single module", "revoked key")
_REFUSED = {"conflict": 409, "invalid": 422, "kube-5xx": 503}
_LATEST = {
    "gcp": 60,
    "lambda": 60,
    "paperspace": 60,
    "runpod": 120,
    "vast": 60,
    "vultr": 60,
}  # seconds a list may lack a new machine (L-2a)


class Adverse:
    """What is wrong in a stage's world, and which runs noticed. ``words`` are names that the world got from an ingredient."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.faults: dict[int, str] = {}
        self.ends: list[tuple[datetime, Fault]] = []
        self.words = {f"-{pool}-": "several classes and pools" for pool in stage.ground.pools[1:]}
        self.records: set[str] = set()  # claims that cannot be read, or not be changed
        self.keys = dict(stage.world.secrets)
        self.skews: dict[str, float] = {}
        self.lags: dict[str, float] = {}  # clouds whose list lags, and what it was before
        self.silent: dict[str, datetime] = {}  # foreign devices and Nodes that show no life, and since when the last is there
        self.met: dict[str, set[str]] = {}  # ingredient to the runs that it struck
        self.counts: dict[str, int] = {}

    # ---- what lines do

    def fault(self, what: str, lasts: float = 0, **rule: t.Any) -> None:
        """A rule of sandbox/faults.py; it ``lasts`` so many seconds, or until it is used up."""
        fault = self.stage.faults.add({**rule, "times": None} if lasts else rule)
        self.faults[id(fault)] = what
        if lasts:
            self.ends.append((self.stage.clock.now() + timedelta(seconds=lasts), fault))

    def pass_time(self) -> None:
        """Outages whose time is over end."""
        for moment, fault in list(self.ends):
            if self.stage.clock.now() >= moment:
                fault.times = fault.hits
                self.ends.remove((moment, fault))

    def lag(self, cloud: str, seconds: float) -> None:
        """From now on the cloud's list shows a new machine so much later than it is made."""
        self.lags.setdefault(cloud, lagging.list_after(self.stage.world, cloud))
        lagging.set_list_after(self.stage.world, cloud, seconds)

    def revoke(self, cloud: str) -> None:
        self.stage.world.secrets[secret_of(cloud)] = "revoked-" + self.keys[secret_of(cloud)]

    def renew(self, cloud: str) -> None:
        self.stage.world.secrets[secret_of(cloud)] = self.keys[secret_of(cloud)]

    def restore(self) -> None:
        """Nothing is wrong any more."""
        self.stage.world.secrets.update(self.keys)
        self.skews.clear()
        self.ends.clear()
        for one in self.stage.sight.living():
            if one.name in self.stage.sight.gpus_lost and one.name in self.stage.nodes():
                self.stage.show_gpus(one.name, self.stage.sight.rented(one))
        self.stage.sight.gpus_lost.clear()
        agents.restore(self.stage)
        for cloud, seconds in self.lags.items():
            lagging.set_list_after(self.stage.world, cloud, seconds)
        self.lags.clear()
        for name in sorted(self.records):
            self._whole(name)
        self.records.clear()

    def _whole(self, name: str) -> None:
        """A person deletes a record that nobody can read or change; its machine is an orphan then."""
        if self.stage.remove_record(name):
            self.stage.sight.forgotten.add(name)
            self.stage.sight.unbooked.add(name)

    # ---- who noticed

    def strike(self, run: str, fault: Fault | None) -> None:
        what = self.faults.get(id(fault)) if fault is not None else None
        if what:
            self.met.setdefault(what, set()).add(run)

    def listed(self, call: Call) -> None:
        """A list was read. It counts where it lags and lacks a machine of ours."""
        if call.service not in self.lags or call.struck:
            return
        late = timedelta(seconds=lagging.list_after(self.stage.world, call.service))
        mine = [one for one in self.stage.sight.living() if one.cloud == call.service]
        if any(self.stage.clock.now() - one.created < late for one in mine):
            self.met.setdefault("lagging list", set()).add(call.run.name)

    def judge(self, outcome: Outcome, text: str) -> None:
        """Count for one run that has ended; ``text`` is all that it said."""
        name = outcome.run.name
        troubled = outcome.end not in ("ok", "killed") or any(one.get("problems") for one in outcome.said.values())
        plain = troubled or outcome.run.repeats
        found = {what for what, runs in self.met.items() if name in runs and (plain or what == "lagging list")}
        found |= {what for word, what in self.words.items() if word in text}
        if abs(self.skews.get(outcome.order.host, 0)) > 120 and "clock" in text:
            found.add("clock skew")
        if outcome.run.mode in ("reap", "autoscale") and outcome.end == "ok":  # what it would remove were it ours
            found |= {
                what
                for what, since in self.silent.items()
                if _LISTED[what] in outcome.run.good and self.stage.clock.now() - since > _OLD
            }
        if outcome.order.host == "t" and outcome.end == "ok" and self.stage.twins and self.stage.sight.living():
            found.add("second cluster")
        applied = (outcome.said.get("plan") or {}) if outcome.order.playbook == "apply" else {}
        if applied.get("launch") or applied.get("destroy"):
            found.add("saved plan")
        if outcome.run.acted and outcome.run.mode == "loop":
            found.add("loop mode")
        if outcome.run.acted:
            found |= {*self.stage.ground.marks, self.stage.source.mark, *([objects.CLAIM] if self.stage.sight.objects else [])}
        for what in found:
            self.counts[what] = self.counts.get(what, 0) + 1


# ---- lines


def _outage(stage: Stage, rest: str) -> None:
    service, seconds = rest.split()
    stage.adverse.fault("outage", float(seconds), service=service, kind="status", status=503)


def _slow(stage: Stage, rest: str) -> None:
    kind, service, seconds = rest.split()
    stage.adverse.fault(
        kind, service=service, method="GET", kind={"slow": "delay"}.get(kind, kind), seconds=float(seconds), times=3
    )


def _refuse(stage: Stage, rest: str) -> None:
    kind, path, times = rest.split()
    service = "kubernetes" if stage.sight.files is None else "directory"
    method = "PATCH" if stage.sight.objects else "PUT"
    stage.adverse.fault(kind, service=service, method=method, path=path, kind="status", status=_REFUSED[kind], times=int(times))


def _skew(stage: Stage, rest: str) -> None:
    host, seconds = rest.split()
    stage.adverse.skews[host] = float(seconds)


def _lag(stage: Stage, rest: str) -> None:
    cloud, seconds = rest.split()
    stage.adverse.lag(cloud, float(seconds))


def _record(stage: Stage, rest: str) -> None:
    kind, place = rest.split()
    names = sorted(set(stage.sight.claims()) - stage.adverse.records)  # one that is immutable cannot be damaged any more
    if not names:
        return
    name = names[int(place) % len(names)]
    stage.adverse.words[name] = f"{kind} record"
    stage.adverse.records.add(name)
    stage.sight.unwritable.add(name)
    if kind == "immutable":
        stage.make_immutable(name)
    else:
        stage.damage(name)


def _terminate(stage: Stage, rest: str) -> None:
    nodes = stage.sight.places()
    if nodes:
        name = nodes[int(rest) % len(nodes)]
        stage.sight.asked.add(name)
        stage.kube("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"tgp.io/terminate": "true"}}})
        if any(stage.sight.pod("default", one) for one in stage.sight.guarded):
            stage.adverse.words[name] = "drain that a PDB blocks"


def _foreign(stage: Stage, rest: str) -> None:
    what, place, stamped = rest.split()
    before = set(stage.sight.foreign) | {uid for _kind, uid in stage.sight.foreign_things}
    strangers.intrude(stage, what, int(place), stamped == "stamped")
    for one in (set(stage.sight.foreign) | {uid for _kind, uid in stage.sight.foreign_things}) - before:
        stage.adverse.words[one] = f"foreign {what}"
        if what == "Node" or (what == "device" and int(place) % 2):  # the others are online
            stage.adverse.silent[f"foreign {what}"] = stage.clock.now()
        if one in stage.sight.foreign:
            stage.adverse.words[stage.sight.foreign[one].name] = f"foreign {what}"


def _change(stage: Stage, rest: str) -> None:
    """The pool's document says something else from now on."""
    key, value = rest.split()
    stage.sight.note_documents()
    if key == "acceptance":
        trials.ask(stage)
        return
    if key == queues.PRE_PULL:
        queues.pull(stage, value)
        return
    below = ("expireAfter", "gpuLossPolicy", "deleteStoppedAfter")
    spec = stage.training.setdefault("disruption", {}) if key in below else stage.training
    spec[key] = agents.entries(value) if key == agents.FIELD else value
    if key == "expireAfter":
        stage.adverse.words["Expired"] = "changed document"


def _gpus(stage: Stage, rest: str) -> None:
    """A node shows so many GPUs fewer from now on."""
    place, fewer = map(int, rest.split())
    machines = [one for one in stage.sight.living() if stage.sight.is_complete(one) and stage.sight.is_node(one)]
    if not machines:
        return
    one = machines[place % len(machines)]
    left, rented = max(0, stage.sight.gpus(one.name) - fewer), stage.sight.rented(one)
    stage.sight.gpus_lost[one.name] = stage.clock.now()
    stage.show_gpus(one.name, left)
    stage.adverse.words[f"shows {left or 'none'} of its {rented} GPUs"] = "node that loses " + ("some GPUs" if left else "its GPUs")


def _document(stage: Stage, rest: str) -> None:
    what, name = rest.split()
    if what == "appear":
        stage.add_document(name)
        stage.adverse.words[f"-{sources.LATER}-"] = "document appear"
        return
    if what == "keep":
        stage.training["orphanedPolicy"] = "Keep"
        stage.sight.kept.setdefault(name, stage.clock.now())
        return
    if name == sources.LATER and not stage.has_later():
        return  # a line before this one was taken out
    stage.change_document(what, name)
    stage.adverse.words["its document is gone"] = "document that goes"
    stage.adverse.words["its object is being deleted"] = objects.DELETED
    if what in stage.source.broken:
        stage.adverse.words[stage.source.broken[what]] = "broken document"


def _twin(stage: Stage, rest: str) -> None:
    stage.found(restored=rest == "restored")


def _source(stage: Stage, rest: str) -> None:
    stage.change_document(rest, "")
    stage.adverse.words |= {word: "empty source" for word in stage.source.unread}
    if rest in stage.source.believed:
        stage.adverse.words["its document is gone"] = "empty source"


def _documents(stage: Stage, rest: str) -> None:
    """Where they stand, before the first run."""
    stage.source = sources.SOURCES[rest](stage.folder)


LINES: dict[str, t.Callable[[Stage, str], None]] = {
    "outage": _outage,
    "slowness": _slow,
    "refuse": _refuse,
    "skew": _skew,
    "lag": _lag,
    "record": _record,
    "terminate": _terminate,
    "foreign": _foreign,
    "change": _change,
    "gpus": _gpus,
    "ail": agents.ail,
    "module": modules.ask,
    "document": _document,
    "documents": _documents,
    "source": _source,
    "twin": _twin,
    "revoke": lambda stage, rest: stage.adverse.revoke(rest),
    "renew": lambda stage, rest: stage.adverse.renew(rest),
}


# ---- chance


def _menu(ground: Ground, dice: random.Random, nodes: bool) -> dict[str, list[str]]:
    """One scene for each ingredient: what goes wrong, and runs that meet it."""
    clouds = [one.cloud for one in ground.clouds()]
    service, place = dice.choice((*clouds, *ground.beside())), dice.randrange(4)
    another, cloud = dice.choice((*clouds, "kubernetes")), dice.choice(clouds)
    records = "/claims/" if "directory" in ground.beside() else "/configmaps/tgp-"
    stamped, times = dice.choice(("stamped", "unstamped")), dice.choice((1, 3))
    begin, after = ["run provision nodes=1"], dice.choice((["run reap"], ["run autoscale"], ["run provision nodes=2"]))
    gone = dice.choice(ground.pools) if len(ground.pools) > 1 else "training"
    looked = ["jump 930", "run reap", "rest 70", "run reap"]
    many = "run provision nodes=2"
    menu: dict[str, list[str]] = {
        "outage": [*begin, f"outage {service} {dice.choice((900, 3600))}", "run reap", "rest 300", *after, "rest 3600"],
        "slow": [f"slowness slow {service} {dice.choice((40, 70))}", *begin, f"slowness slow {another} 70", *after],
        "hang": [f"slowness hang {service} {dice.choice((30, 120))}", *begin, f"slowness hang {another} 30", *after],
        "drip": [f"slowness drip {service} {dice.choice((120, 900))}", *begin, f"slowness drip {another} 900", *after],
        **{
            kind: [
                *begin,
                f"refuse {kind} {records} {times}",
                many,
                "rest 660",
                f"refuse {kind} {records} {times}",
                *after,
            ]
            for kind in _REFUSED
        },
        "clock skew": [
            *begin,
            f"skew b {dice.choice((-7200, -600, 300, 7200))}",
            "run reap host=b",
            *after,
            f"run {dice.choice(('autoscale', 'provision nodes=2', 'destroy'))} host=b",
            "run reap host=b",
            "skew b 0",
        ],
        "lagging list": [
            *(f"lag {cloud} {_LATEST[cloud]}" for cloud in clouds if cloud in _LATEST),
            f"run provision nodes=1{dice.choice(('', ' kill=30 after', ' kill=40 after', ' kill=50 after'))}",
            *dice.choice(([], ["rest 25"], ["strike vanish 0"])),
            *after,
            "rest 70",
            "run reap",
        ],
        "damaged record": [*begin, f"record damaged {place}", *after, "rest 70", "run reap"],
        "immutable record": [*begin, f"record immutable {place}", *after, "rest 660", "run reap"],
        "foreign machine": [*begin, f"foreign machine {place} {stamped}", *looked, "module 0", "module 0 ours"],
        "single module": [
            many,
            "foreign machine 0 stamped",
            f"foreign machine {place} {stamped}",
            "rest 240",
            *("module 0", "module 1", "module 0 ours", "module 1 ours"),
        ],
        "foreign device": [*begin, f"foreign device {place} {stamped}", *looked],
        "foreign Node": [*begin, f"foreign Node {place} {stamped}", *looked],
        "revoked key": [*begin, f"revoke {cloud}", *after, "rest 70", "run reap", f"renew {cloud}"],
        "changed document": [
            *begin,
            f"change expireAfter {dice.choice(('30m', '30m', '2h'))}",
            *(["rest 1900", "run reap", many] * 2),
            "rest 5400",
            "run reap",
            "change expireAfter Never",
        ],
        "document that goes": [
            *dice.choice(([], ["document keep training"])),
            f"{begin[0]}{' pool=batch' if gone == 'batch' else ''}",
            f"document vanish {gone}",
            *["run reap", "rest 330"] * dice.choice((2, 3, 4)),
            *after,
            *dice.choice(([], [f"document return {gone}", *begin])),
        ],
        "broken document": [
            *begin,
            f"document {dice.choice(('yaml', 'field'))} {dice.choice(('training', 'training', 'demo'))}",
            "run reap",
            "rest 330",
            *after,
            "document return training",
            "document return demo",
            *begin,
        ],
        "empty source": [
            *begin,
            f"source {('empty', 'missing')[place % 2]}",
            *["run reap", "rest 330"] * 2,
            *after,
            "source return",
            "run reap",
        ],
        "second cluster": [
            *begin,
            *dice.choice((["rest 660"], ["min 1"])),
            f"twin {dice.choice(('empty', 'restored'))}",
            *["run reap host=t", "rest 700"] * dice.choice((2, 4)),
            *after,
            "run reap host=t",
        ],
        pauses.WORD: [
            *begin,
            *dice.choice(([], [f"pod {place} short"], ["min 2"])),
            f"pause {dice.choice(('training', 'training', 'demo', 'all'))}",
            *["rest 660", "run reap"] * dice.choice((1, 2)),
            *after,
            *dice.choice(
                (["run plan nodes=2", "run apply"], [f"strike dies {place}", "rest 70", "run autoscale"], ["run destroy"])
            ),
            *dice.choice((["run provision nodes=2 kill=20"], ["run autoscale"])),
            *dice.choice((["resume", "run reap"], ["resume", *after], [])),
        ],
        "saved plan": ["run plan nodes=1", "run apply", "run plan nodes=2", "run apply", *begin],
    }
    if nodes:
        for kind in ("claim", "spread", "affinity", "grace"):
            menu[f"pod with {kind}"] = [*begin, f"pod {place} {kind}", "rest 660", "run reap", "rest 660", "run reap"]
        lost = [*begin, *dice.choice((["min 1"], [f"pod {place} short"], [f"pod {place} busy"])), f"gpus {place} 1"]
        menu[_SOME if ground.gpus * ground.instances > 1 else "node that loses its GPUs"] = [
            *dice.choice(([], ["change gpuLossPolicy Replace"])),
            *lost,
            *["run reap", "rest 70"] * 2,
            *after,
            "rest 1300",
            "run reap",
            "rest 70",
            "run reap",
        ]
        menu |= workloads.scenes(ground, dice, place) | queues.scenes(ground, dice)
        menu[agents.NAME] = agents.scene(dice, place, begin, after)
        if ground.may_have_hub():
            menu[migrating.WORD] = migrating.scene(ground, dice, place)
            menu[silence.WORD] = silence.scene(ground, dice, place)
        menu |= moving.scenes(ground, dice)
        menu["drain that a PDB blocks"] = [*begin, "pod 0 guarded", "terminate 0", "run reap", "rest 660", "run reap"]
    if ground.has_own():  # there is no account: no key, no list that lags, and no machine that somebody else rents
        menu = {name: lines for name, lines in menu.items() if name not in _OF_ACCOUNTS}
    return menu


def draw(ground: Ground, seed: str, nodes: bool) -> list[list[str]]:
    """Scenes of a story: none in one of ten, else three to five different ones."""
    dice = random.Random(f"adverse {seed}")
    menu = {name: lines for name, lines in sorted(_menu(ground, dice, nodes).items()) if switches.on(name)}
    names = [name for name in menu for _ticket in range(2 if name.startswith(_RARE) else 1)]
    chosen = dice.sample(names, dice.choice((0, 3, 3, 3, 4, 4, 4, 5, 5, 5)))
    if chosen and _SOME in menu and dice.random() < 0.8:  # one ground in thirteen has nodes with more than one GPU
        chosen.append(_SOME)
    return [*(menu[name] for name in dict.fromkeys(chosen)), *images.draw(ground, seed)]


def few(ground: Ground, seed: str, nodes: bool) -> list[list[str]]:
    """One or two scenes, each as likely as any other."""
    dice = random.Random(f"few {seed}")
    menu = {name: lines for name, lines in sorted(_menu(ground, dice, nodes).items()) if switches.on(name)}
    return [menu[name] for name in dice.sample(sorted(menu), dice.choice((1, 1, 2)))]


def appear(ground: Ground, seed: str, nodes: bool) -> list[tuple[list[str], float]]:
    """In a third of the stories with rented machines a document appears, may break, and goes again; and where in the story."""
    dice = random.Random(f"appear {seed}")
    if ground.has_own() or dice.random() >= 0.35 or not switches.on("document appear"):
        return []
    kind = dice.choice(("request", "pool")) if nodes else "pool"
    broken = [
        f"document {dice.choice(('yaml', 'field'))} {sources.LATER}",
        "run reap",
        "rest 330",
        f"document return {sources.LATER}",
    ]
    scene = [
        *dice.choice(([], ["run provision nodes=1"])),
        f"document appear {kind}",
        f"run {dice.choice(('autoscale', 'autoscale', f'provision nodes=1 pool={sources.LATER}'))}",
        *dice.choice((["rest 70"], ["rest 660"], broken)),
        *dice.choice((["run reap"], ["run autoscale"], ["run provision nodes=2"])),
    ]
    goes = [f"document vanish {sources.LATER}", *["run reap", "rest 330"] * dice.choice((1, 3))]
    return [([*scene, *dice.choice(([], goes, goes))], dice.random())]


def lags(ground: Ground, seed: str) -> list[str]:
    """In one of five stories the lists of all clouds lag from the beginning."""
    dice = random.Random(f"lag {seed}")
    clouds = (
        [one.cloud for one in ground.clouds() if one.cloud in _LATEST]
        if dice.random() < 0.2 and switches.on("lagging list")
        else []
    )
    return [f"lag {cloud} {_LATEST[cloud]}" for cloud in clouds]


def report(counts: t.Mapping[str, int], say: t.Callable[[str], None]) -> list[str]:
    """Print in how many runs each ingredient changed an action; those that did in too few."""
    for what in sorted(counts):
        say(f"  {what:32} {counts[what]:>6} runs")
    return [what for what in INGREDIENTS if switches.on(what) and counts.get(what, 0) < LEAST]


INGREDIENTS = (
    "outage", "slow", "hang", "drip", "conflict", "invalid", "kube-5xx", "clock skew", "damaged record", "immutable record", "foreign machine",
    "foreign device", "foreign Node", "revoked key", "changed document", "document that goes", "broken document", "empty source",
    "document appear", "documents from a folder", "documents from a file", "documents from the cluster", "several classes and pools",
    "second cluster", "lagging list", "single module", "pod with claim", "pod with spread", "pod with affinity", "pod with grace",
    "node that loses some GPUs", "node that loses its GPUs", agents.NAME, "drain that a PDB blocks", "saved plan",
    queues.REQUEST, queues.BUFFER, queues.TEAM, queues.IMAGES, migrating.WORD, silence.WORD, moving.WORD_IN, moving.WORD_OUT,
    "paused pool", trials.WORD, workloads.GANG, workloads.PLACED, workloads.PULLING, objects.DELETED, objects.CLAIM, objects.DELETED_CLAIM,
    "directory store", "headscale", "WireGuard", "loop mode", "own machines", "lane talos", "lane service",
)  # fmt: skip
