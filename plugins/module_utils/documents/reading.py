# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values of documents, read with their meaning. A fault is noted with its place; reading goes on, so that all are found."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from decimal import Decimal

from ..core.errors import InvalidInput
from ..model import SecretRef, Taint
from ..model.labels import EPHEMERAL_TAINT
from ..planner.offers import gpu_models
from ..planner.offers.requirements import misspelt_region
from ..planner.provisioning.limits import RESOURCE_OF_VENDOR
from ..providers.registry import ENTRIES, canonical_cloud, cloud_suggestions
from ..units.values import parse_duration, parse_money

_AMOUNT = re.compile(r"([0-9]+)\s*(Ki|Mi|Gi|Ti|MiB|GiB|TiB)?")
_MIB = {"Mi": 1, "MiB": 1, "Gi": 1024, "GiB": 1024, "Ti": 1024 * 1024, "TiB": 1024 * 1024}
_SECRETS = "tgp-system"
_T = t.TypeVar("_T")


class Fault(t.NamedTuple):
    """What is wrong with the document at ``place``, empty when it is of no single one. ``path`` is the field, where one rule found it."""

    place: str
    text: str
    path: str = ""

    @property
    def sentence(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.text) if part)


class Reader:
    """Collects the faults and warnings of one document. ``source`` says where it came from, ``secrets`` is the namespace of a Secret that
    is named without one."""

    def __init__(self, source: str, problems: list[Fault], warnings: list[str], secrets: str = "") -> None:
        self.source = source
        self._secrets = secrets or _SECRETS
        self._problems = problems
        self._warnings = warnings

    def fault(self, path: str, sentence: str) -> None:
        self._problems.append(Fault(self.source, sentence, path))

    def warn(self, path: str, sentence: str) -> None:
        self._warnings.append(f"{self.source}: {path}: {sentence}")

    def _read(self, path: str, read: t.Callable[[], _T], instead: _T) -> _T:
        try:
            return read()
        except InvalidInput as error:
            self.fault(path, str(error))
            return instead

    def money(self, value: t.Any, path: str) -> Decimal | None:
        """Dollars; None when not given or not possible."""
        return None if value is None else self._read(path, lambda: parse_money(value), None)

    def duration(self, value: t.Any, path: str, default: int) -> int:
        """Seconds."""
        read = self.duration_or_never(value, path, default, never=False)
        return default if read is None else read

    def duration_or_never(self, value: t.Any, path: str, default: int | None, *, never: bool = True) -> int | None:
        """Seconds, None for Never."""
        return default if value is None else self._read(path, lambda: parse_duration(value, never=never), default)

    def mib(self, value: t.Any, path: str) -> int | None:
        """MiB of a number (GiB) or of text with a unit."""
        if value is None:
            return None
        match = _AMOUNT.fullmatch(str(value).strip())
        if match is None or match[2] == "Ki" or int(match[1]) == 0:
            self.fault(path, f"{value!r} is not an amount of memory. Write GiB as a number, or text like 24Gi or 24576Mi.")
            return None
        return int(match[1]) * _MIB[match[2] or "Gi"]

    def gpu_limits(self, limits: t.Mapping[str, t.Any]) -> dict[str, int]:
        """``spec.limits.resources``: GPUs by the names under which they are counted."""
        for name in limits.get("resources", {}):
            if name not in RESOURCE_OF_VENDOR.values():
                self.fault(
                    "spec.limits.resources",
                    f"{name!r} is not counted, so it would limit nothing. Use {' or '.join(RESOURCE_OF_VENDOR.values())}.",
                )
        return dict(limits.get("resources", {}))

    def cloud(self, name: str, path: str) -> str | None:
        """The canonical name of a cloud."""
        cloud = canonical_cloud(name)
        if cloud is None:
            near = cloud_suggestions(name)
            hint = f"Known are {', '.join(ENTRIES)}."
            self.fault(path, f"there is no cloud {name!r}. {f'Did you mean {near[0]}?' if near else hint}")
        return cloud

    def model(self, name: str, path: str) -> str | None:
        """A GPU model people ask for: the canonical name, with the memory size if they named one."""
        wanted = gpu_models.parse(name)
        if wanted is not None:
            return wanted.model if wanted.memory_mib is None else name
        near = gpu_models.suggestions(name)
        self.fault(path, f"{name!r} is not a known GPU model. {f'Did you mean {near[0]}?' if near else 'Example: RTX4090.'}")
        return None

    def region(self, name: str, path: str, own: t.Iterable[str] = ()) -> str:
        """A region people ask for, as it stands; a fault when no cloud has it and it resembles one that is. ``own``: regions of own
        machines."""
        named = [word for entry in ENTRIES.values() for word in entry.regions]
        if near := misspelt_region(name, [*named, *own]):
            self.fault(path, f"there is no region {name!r}. Did you mean {' or '.join(near)}?")
        return name

    def networks(self, values: t.Sequence[str], path: str) -> tuple[str, ...]:
        """Networks in CIDR form."""
        for place, value in enumerate(values):
            try:
                ipaddress.ip_network(value)
            except ValueError as error:
                self.fault(f"{path}[{place}]", f"{error}. Write a network like 10.0.0.0/24.")
        return tuple(values)

    def secret_ref(self, value: t.Mapping[str, str] | None) -> SecretRef | None:
        """A reference to a key of a Secret."""
        return None if value is None else SecretRef(value["name"], value["key"], value.get("namespace", self._secrets))


def taints(values: t.Sequence[t.Mapping[str, str]]) -> tuple[Taint, ...]:
    """Taints in the order given."""
    return tuple(Taint(entry["key"], entry.get("value", ""), entry["effect"]) for entry in values)


# ---- fields and values that people may expect and that are not honoured. They are refused by name, never accepted and ignored.
# ``REFUSED``: the same spec has another name here, or another place; the sentence says which

REFUSED: dict[str, str] = {
    "spec.calendar": "hours are those of a pool; write spec.calendar in each GPUNodePool",
    "spec.schedule": "write the hours of a pool as spec.calendar, and when its nodes may go as schedule in spec.disruption.budgets",
    "spec.nodes": "write spec.replicas for an exact number or spec.minNodes for a floor in a GPUNodePool; provision.yml "
    "-e tgp_nodes= asks for more, autoscale.yml follows the pods",
    "spec.service": "what a container runs stands in template.spec.service of a GPUNodePool that accepts lane service; a request is a node",
    "spec.networking.tailscale": "networking.backend tailscale is the whole switch, and tags and routes are spec.tailscaleConfig. "
    "The cluster's Tailscale operator (operatorEnabled) is set up by prereqs.yml, and no document switches it",
    "spec.networking.wireguard": "write it as spec.wireguardConfig",
    "spec.wireguardConfig.privateKey": "each node gets a key of its own, and the hub's stays on the hub",
    "spec.wireguardConfig.address": "each node gets an address of its own from spec.wireguardConfig.addresses",
    "spec.template.spec.timeSlicing": "write it as spec.timeSlicing",
    "spec.limits.budget": "write it as spec.budget",
    "spec.tailscaleConfig.hostname": "the host name of a machine is always its own name; leave this out",
    "spec.talosConfig.tailscaleConfig.hostname": "the host name of a machine is always its own name; leave this out",
    "spec.template.spec.ephemeralTaint": f"name the taint {EPHEMERAL_TAINT} in template.spec.taints to choose its effect yourself",
}
REFUSED_VALUES: dict[str, dict[str, str]] = {
    "spec.networking.backend": {
        "kubespan": "KubeSpan is a matter of the Talos configuration alone; write it into the template or the patches of talosConfig, "
        "and networking.backend none",
    },
    "spec.template.spec.lanes": {
        "takeover": "no pool rents by it; it is an experimental role for machines that exist already (docs/how_to/takeover.md)",
    },
}
