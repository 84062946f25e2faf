# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How single machines go wrong."""

from __future__ import annotations

import dataclasses
import re
import threading
import typing as t

from .world import Machine

KINDS: dict[str, str] = {
    "never_boots": "the cloud says booting for ever",
    "pull_fails": "the image of its container cannot be pulled: the system log says so every half minute, the state stays that of a pull",
    "boot_error": "the machine comes up broken: its cloud calls it unhealthy, an own machine switches itself off",
    "dies": "it loses power `seconds` after its boot began: the cloud shows it as unhealthy and bills on",
    "crash": "its system hangs `seconds` after its boot began: kubelet and mesh client fall silent, the cloud notices nothing",
    "vanish": "the cloud takes it back `seconds` after its boot began",
    "mesh_fails": "the mesh client cannot reach its coordination server",
    "never_ready": "the node registers and its network never comes up",
    "gpu_missing": "only `gpus` GPUs ever become allocatable",
    "plugin_late": "the pod of its device plugin is Ready only after `seconds`",
    "plugin_crash": "the pod of its device plugin crashes again and again",
    "bad_gpu": "its GPUs fail every program that is run on them: an acceptance test ends with status 1",
    "hanging_gpu": "no program that is run on its GPUs ever ends",
    "image_missing": "no image of an acceptance test or of prePull can be pulled on it, for `seconds` or (0) for ever",
    "slow_pull": "each image of prePull takes `seconds` to come on it",
    "mesh_relayed": "its mesh finds no direct path: what its pods send to those of other nodes goes through a slow relay",
    "mesh_blocked": "its pods reach none of other nodes: each connection times out",
    "test_evicted": "its kubelet evicts the first pod that tests it, and the first one that pulls images",
    "disk_too_small": "its root disk has only `gib` GiB free",
    "clock_skew": "its clock is `seconds` behind, and nothing sets it right: beyond thirty days no certificate counts as valid yet",
    "blocked": "it has no way to `port` of the control plane: 6443, or 50001 for Talos",
    "cut_off": "`seconds` after its boot began it has no way to the control plane any more, and its kubelet falls silent",
    "wrong_ca": "the API server shows it a certificate of another authority, as something that looks into TLS does",
    "other_kubelet": "its image brings a kubelet of `version`; newer than the API server it gets no further than its Node",
    "own_label": "its configuration carries `label` besides, as an image of somebody's own may",
    "unhealthy_path": "the health path of its container answers 503, for `seconds` or (0) for ever",
    "slow": "every step takes `factor` times as long",
}
ENDINGS = ("dies", "crash", "vanish")
PORTS = (6443, 50001)


@dataclasses.dataclass
class Behaviour:
    """Applies to machines of ``cloud``, ``type``, ``region`` (empty: any) whose name matches the expression ``name``: the first ``skip``
    of them are spared, the next ``times`` (None: all) behave so. Only the first behaviour of each kind counts for one machine."""

    kind: str
    cloud: str = ""
    type: str = ""
    region: str = ""
    name: str = ""
    skip: int = 0
    times: int | None = None
    seconds: float = 0.0
    factor: float = 3.0
    gpus: int = 0
    gib: int = 8
    port: int = 6443
    version: str = ""
    label: str = "node-role.kubernetes.io/gpu"

    @classmethod
    def parse(cls, rule: t.Any) -> Behaviour:
        """A behaviour as JSON or YAML. ValueError says what is wrong."""
        if not isinstance(rule, dict):
            raise ValueError("a behaviour is an object with at least `kind`")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := [str(key) for key in rule if key not in known]:
            raise ValueError(f"unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        if str(rule.get("kind")) not in KINDS:
            raise ValueError(f"kind {rule.get('kind')!r} should be one of {', '.join(KINDS)}")
        for key in ("cloud", "type", "region", "name", "version", "label"):
            if not isinstance(rule.get(key, ""), str):
                raise ValueError(f"{key} should be text")
        for key in ("skip", "times", "gpus", "gib", "port", "seconds", "factor"):
            value = rule.get(key, 0)
            whole = key in ("skip", "times", "gpus", "gib", "port")
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"{key} should be {'a whole number' if whole else 'a number'} of zero or more, not {value!r}")
        if rule["kind"] in (*ENDINGS, "clock_skew", "plugin_late", "slow_pull", "cut_off") and "seconds" not in rule:
            raise ValueError(f"{rule['kind']} needs `seconds`")
        if rule["kind"] == "blocked" and rule.get("port", 6443) not in PORTS:
            raise ValueError("port should be 6443 or 50001")
        if rule["kind"] == "other_kubelet" and not re.fullmatch(r"v\d+\.\d+\.\d+", rule.get("version", "")):
            raise ValueError("other_kubelet needs a `version` like v1.37.0")
        if rule.get("factor", 1) == 0:
            raise ValueError("factor should be above zero")
        try:
            re.compile(rule.get("name", ""))
        except re.error as error:
            raise ValueError(f"name is no regular expression: {error}") from error
        return cls(**rule)

    def meets(self, machine: Machine) -> bool:
        """Whether the rule is about this machine."""
        offer = machine.offer
        return (
            self.cloud in ("", machine.cloud)
            and self.type in ("", offer.type)
            and self.region in ("", offer.region)
            and re.search(self.name, machine.name) is not None
        )


class Behaviours:
    """Hands each machine its part at its boot; counts who got one."""

    def __init__(self, rules: t.Iterable[Behaviour] = ()) -> None:
        self._rules = [(rule, [rule.skip, rule.times]) for rule in rules]
        self._lock = threading.Lock()

    def add(self, rule: Behaviour) -> None:
        with self._lock:
            self._rules.append((rule, [rule.skip, rule.times]))

    def of(self, machine: Machine) -> dict[str, Behaviour]:
        """Kind to behaviour for a machine that begins to boot."""
        found: dict[str, Behaviour] = {}
        with self._lock:
            for rule, left in self._rules:
                if rule.kind in found or not rule.meets(machine):
                    continue
                skip, times = left
                if skip:
                    left[0] = skip - 1
                elif times is None or times > 0:
                    found[rule.kind] = rule
                    left[1] = None if times is None else times - 1
        return found
