# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers that vanish for hours (L-46): machines with a guard, which powers them off, and machines that Google deletes by itself. And what
must hold of them."""

from __future__ import annotations

import json
import random
import typing as t
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from sandbox.guard import EVERY
from sandbox.world import Machine

from .reasons import seconds_of
from .sight import pool_in

if t.TYPE_CHECKING:
    from .grounds import Ground
    from .sight import Sight
    from .stage import Order, Outcome, Stage

WORD = "silent controller"
SAVES = ("gcp", "paperspace", "vast")  # a machine that is off costs less there, so a class without a word has a guard
STOPPED = (*SAVES, "vultr")  # they show a machine that powered itself off as stopped
_DEFAULT = 86_400.0
_SLACK = timedelta(seconds=EVERY + 5)  # silence counts from the last check that was answered
_CHECKS = timedelta(seconds=4 * EVERY)  # a guard begins to count with its second check, and looks every ten minutes
_SEEN = timedelta(seconds=120)  # what powered off so short a time ago no run can know
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/tgp-system"
_KINDS = {"Role": f"{_RBAC}/roles", "RoleBinding": f"{_RBAC}/rolebindings"}
_MANIFEST = Path(__file__).resolve().parents[2] / "files" / "guard.yml"


class Silences:
    """What guards are set to, and whom they powered off. ``heard``: when the run lock's last sign of life was another one than before."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self.settings: list[tuple[datetime, float | None, float | None]] = []  # since when classes say so; seconds, None = never
        self.off: dict[str, datetime] = {}  # ids of machines that powered themselves off, and when
        self.heard: datetime | None = None
        self._renewed = ""

    def hear(self) -> None:
        """The Lease may have changed."""
        if (renewed := self._sight.renewed()) and renewed != self._renewed:
            self._renewed, self.heard = renewed, self._sight.now

    def limits(self, machine: Machine) -> tuple[float | None, float | None]:
        """``silentFor`` and ``controllerSilentFor`` of its guard."""
        default = _DEFAULT if machine.cloud in SAVES else None
        said = [(silent, controller) for since, silent, controller in self.settings if since <= machine.created]
        return said[-1] if said else (default, None)

    def cut_off_since(self, machine: Machine) -> datetime | None:
        """Since when it has no way to the API server."""
        kubelets = self._sight.rig.box.kubelets
        part = kubelets.behaviours(machine.name).get("cut_off") if kubelets is not None else None
        if part is None or machine.began is None:
            return None
        began = self._sight.now - timedelta(seconds=self._sight.rig.clock.seconds() - machine.began)
        return began + timedelta(seconds=part.seconds)

    def short_lived(self, machine: Machine) -> bool:
        """Whether Google deletes it soon by itself (``lifetime``)."""
        longest = ((machine.details.get("scheduling") or {}).get("maxRunDuration") or {}).get("seconds")
        return longest is not None and int(longest) < 10 * _DEFAULT

    def quiet(self, machine: Machine) -> tuple[float, float]:
        """Seconds for which it has heard nothing from the API server, and from a controller."""
        now, cut = self._sight.now, self.cut_off_since(machine)
        api = (now - cut).total_seconds() if cut is not None else 0.0
        return api, (now - self.heard).total_seconds() if self.heard is not None else 0.0


# ---- what lines do


def install(stage: Stage) -> None:
    """From now on each power-off by a guard is judged."""
    machines, plain = stage.box.machines, stage.box.machines.shut_down
    stage.sight.silences = Silences(stage.sight)

    def shut_down(machine: Machine) -> None:
        stage.broken += [f"I-38: {problem}" for problem in [I38_a_guard_waits(stage.sight, machine)] if problem]
        stage.sight.silences.off[machine.id] = stage.clock.now()
        plain(machine)

    machines.shut_down = shut_down  # type: ignore[method-assign]


def guard(stage: Stage, rest: str) -> None:
    """``guard 2h Never``: silentFor and controllerSilentFor of the classes from now on, for new machines."""
    silent, controller = rest.split()
    silences = stage.sight.silences
    if not silences.settings:
        stage.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
        for manifest in yaml.safe_load_all(_MANIFEST.read_text(encoding="utf-8")):
            stage.kube("POST", _KINDS[manifest["kind"]], manifest)
    stage.sight.note_documents()
    for one in stage.documents:
        if one["kind"] == "GPUNodeClass":
            one["spec"]["guard"] = {"silentFor": silent, "controllerSilentFor": controller}
    times = [None if text == "Never" else seconds_of(text) for text in (silent, controller)]
    silences.settings.append((stage.clock.now(), times[0], times[1]))


def lifetime(stage: Stage, rest: str) -> None:
    """``lifetime 2``: Google deletes new machines so many hours after their creation."""
    for one in stage.demo_class["providers"]:
        if one["name"] == "gcp":
            one.setdefault("settings", {})["maxRunHours"] = int(rest)


def vanish(stage: Stage, rest: str) -> None:
    """``silence 10800``: nobody runs anything for so long. Afterwards every guard has done what it has to."""
    stage.rest(float(rest))
    silences, sight = stage.sight.silences, stage.sight
    for one in sight.living():
        if one.id in silences.off:
            stage.adverse.words[one.name] = WORD
        elif problem := I38_a_guard_acts(sight, one):
            stage.broken.append(f"I-38: {problem}")


def restore(stage: Stage) -> None:
    """Classes say nothing of guards any more, and Google lets new machines live."""
    for one in stage.documents:
        if one["kind"] == "GPUNodeClass":
            one["spec"].pop("guard", None)
            for choice in one["spec"]["providers"]:
                (choice.get("settings") or {}).pop("maxRunHours", None)
    if stage.sight.silences.settings:
        stage.sight.silences.settings.append((stage.clock.now(), _DEFAULT, None))


LINES: dict[str, t.Callable[[Stage, str], None]] = {"guard": guard, "silence": vanish, "lifetime": lifetime}


# ---- the invariants


def I38_a_guard_waits(sight: Sight, machine: Machine) -> str:
    """A machine powers itself off when its API server, or the controller, has been silent for as long as its class said, and no sooner."""
    limits, silence = sight.silences.limits(machine), sight.silences.quiet(machine)
    if any(limit is not None and heard >= limit - _SLACK.total_seconds() for limit, heard in zip(limits, silence, strict=True)):
        return ""
    return f"{machine.name} powers itself off after {silence[0]:.0f} s without the API server and {silence[1]:.0f} s without a run"


def I38_a_guard_acts(sight: Sight, machine: Machine) -> str:
    """A node with a guard that heard nothing for so long is off."""
    joined = [time for time, step, _text in machine.steps if step == "node"]
    if not joined or "struck" in machine.details or machine.state in ("stopped", "terminating") or not _is_guarded(machine):
        return ""
    age = (sight.now - joined[-1]).total_seconds() - _CHECKS.total_seconds()
    silent, controller = sight.silences.limits(machine)
    quiet = sight.silences.quiet(machine)
    if quiet[0] > 0:
        controller = None  # it counts and acts while the API server answers
    for limit, heard in zip((silent, controller), quiet, strict=True):
        if limit is not None and min(age, heard - _CHECKS.total_seconds()) >= limit:
            return f"{machine.name} is on after {heard:.0f} s of silence, its guard says {limit:.0f}"
    return ""


def _is_guarded(machine: Machine) -> bool:
    """Whether it is a node of lane kubelet; on Talos there is no guard."""
    return any(step == "config" and text.startswith("kubelet:") for _time, step, text in machine.steps)


def I38_the_next_run_deletes_it(sight: Sight, outcome: Outcome, order: Order, began: datetime) -> str:
    """A run of ``reap`` that nothing disturbed and that has no problem leaves no machine that powered itself off before it began."""
    run = outcome.run
    if order.playbook != "reap" or outcome.end != "ok" or run.struck or any(one.get("problems") for one in outcome.said.values()):
        return ""
    if (outcome.said.get("plan") or {}).get("outcome") == "lock_busy" or order.check:
        return ""
    claims = sight.claims()
    for one in sight.living():
        since = sight.silences.off.get(one.id)
        if since is None or since > began - _SEEN or one.cloud not in STOPPED or one.cloud in run.bad or one.cloud not in run.good:
            continue
        claim = claims.get(one.name)
        if claim is None or pool_in(one.name) in sight.paused or one.name in sight.unwritable | sight.forgotten:
            continue
        if one.state == "stopped" and claim["phase"] != "Terminating":
            return f"{one.name} powered itself off at {since:%d %H:%M:%S}, and a run of reap leaves it"
    return ""


# ---- chance


def scene(ground: Ground, dice: random.Random, place: int) -> list[str]:
    """Machines with guards, hours without a run, and the run that comes after them; in some runs come often enough."""
    hours = dice.choice(("1h 2h", "2h 3h", "Never 2h", "1h Never", "Never 1h"))
    cut = ["behave " + json.dumps({"kind": "cut_off", "seconds": dice.choice((900, 3000)), "times": 1})]
    often = [line for _turn in range(5) for line in (f"run {dice.choice(('reap', 'autoscale'))}", "rest 2400")]
    kill = dice.choice(("", "", f" kill={dice.randint(5, 50)} after"))
    gone = [f"silence {dice.choice((4000, 9000, 16000))}"]
    return [
        f"guard {hours}",
        *(dice.choice(([], ["lifetime 2"])) if ground.cloud == "gcp" else ()),
        *dice.choice(([], cut)),
        f"run provision nodes={dice.choice((1, 2, 2))}",
        *dice.choice(([], [f"pod {place} busy"], [f"pod {place} guarded"], ["min 1"])),
        *dice.choice((gone, gone, [*often, *gone], often)),
        f"run {dice.choice(('reap', 'reap', 'autoscale', 'provision nodes=1'))}{kill}",
        "rest 70",
        "run reap",
        *dice.choice(([], ["silence 9000", "run reap"])),
    ]
