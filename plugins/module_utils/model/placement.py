# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a pod may run, as it says itself: selectors, tolerations, and how it gets on with other pods."""

from __future__ import annotations

import dataclasses

DEFAULT_SCHEDULER = "default-scheduler"


@dataclasses.dataclass(frozen=True, slots=True)
class Expression:
    """One condition on a label: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative of a required node affinity: all of its conditions hold. ``fields`` are conditions on metadata.name."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod tolerates. An empty key stands for every key, an empty effect for every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Others:
    """Pods that one keeps away from: those of ``namespaces`` (empty = of any) whose labels meet all conditions."""

    namespaces: tuple[str, ...]
    labels: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """What a pod says about its place. ``selector`` are label and value; of ``terms`` one has to hold (empty = no affinity).

    ``alone``: no pod of these on the same node. ``unsupported`` names a required rule that nothing here can follow, empty without.
    ``claims``: it asks for devices by resource claims. ``scheduler`` places it. ``spread``: a topology spread that has to hold.
    ``volumes``: it uses persistent volumes, which may be reachable from some nodes only. ``avoids``: pods that it keeps away from over
    more than one node (part of what ``unsupported`` names).
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    alone: tuple[Others, ...] = ()
    unsupported: str = ""
    claims: bool = False
    priority: int = 0
    scheduler: str = DEFAULT_SCHEDULER
    spread: bool = False
    volumes: bool = False
    avoids: tuple[Others, ...] = ()

    @property
    def unmovable(self) -> str:
        """Why nobody here can say on which other node the pod could run; empty when the rules of this collection can."""
        if self.claims:
            return "resource claims"
        if self.unsupported:
            return self.unsupported
        return "hard topology spread" if self.spread else "persistent volume" if self.volumes else ""
