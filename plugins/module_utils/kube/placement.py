# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod says about its place, read from its raw form. Thousands of pods say the same few things, so equal records are one."""

from __future__ import annotations

import functools
import typing as t

from ..model import Expression, NodeTerm, Others, Placement, Toleration
from ..model.labels import HOSTNAME_LABEL
from ..model.placement import DEFAULT_SCHEDULER

Raw = t.Mapping[str, t.Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NOTHING: Raw = {}
_one_of = functools.lru_cache(maxsize=4096)(Placement)
_toleration = functools.lru_cache(maxsize=1024)(Toleration)


def placement_of(spec: Raw, namespace: str) -> Placement:
    """The placement of a pod's ``spec``. What is only preferred is left out: nothing here follows it."""
    affinity = spec.get("affinity") or _NOTHING
    alone, unsupported = _others(affinity, namespace) if affinity else ((), "")
    spread = spec.get("topologySpreadConstraints")
    volumes = spec.get("volumes")
    selector = spec.get("nodeSelector")
    tolerations = spec.get("tolerations")
    return _one_of(
        tuple(sorted(selector.items())) if selector else (),
        _terms(affinity) if affinity else (),
        tuple(_tolerated(one) for one in tolerations) if tolerations else (),
        alone,
        unsupported,
        bool(spec.get("resourceClaims")),
        int(spec.get("priority") or 0),
        spec.get("schedulerName") or DEFAULT_SCHEDULER,
        any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spread) if spread else False,
        any("persistentVolumeClaim" in one or "ephemeral" in one for one in volumes) if volumes else False,
        _avoids(affinity, namespace) if affinity else (),
    )


def _tolerated(raw: Raw) -> Toleration:
    return _toleration(raw.get("key") or "", raw.get("operator") or "Equal", raw.get("value") or "", raw.get("effect") or "")


def _terms(affinity: Raw) -> tuple[NodeTerm, ...]:
    required = (affinity.get("nodeAffinity") or _NOTHING).get(_REQUIRED) or _NOTHING
    return tuple(
        NodeTerm(_expressions(one.get("matchExpressions")), _expressions(one.get("matchFields")))
        for one in required.get("nodeSelectorTerms") or ()
    )


def _expressions(raw: t.Iterable[Raw] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(one["key"], one["operator"], tuple(str(value) for value in one.get("values") or ())) for one in raw or ()
    )


def _others(affinity: Raw, namespace: str) -> tuple[tuple[Others, ...], str]:
    """Pods it keeps away from on its node, and the first required rule beside those that can be followed."""
    if (affinity.get("podAffinity") or _NOTHING).get(_REQUIRED):
        return (), "required podAffinity"
    alone = []
    for term in (affinity.get("podAntiAffinity") or _NOTHING).get(_REQUIRED) or ():
        if term.get("topologyKey") != HOSTNAME_LABEL:
            return (), f"required podAntiAffinity over {term.get('topologyKey')}"
        beyond = next(
            (key for key in ("namespaceSelector", "matchLabelKeys", "mismatchLabelKeys") if term.get(key) is not None), ""
        )
        if beyond:
            return (), f"podAntiAffinity with {beyond}"
        if term.get("labelSelector") is not None:  # a selector that is missing matches no pod
            alone.append(_meant(term, tuple(sorted(term.get("namespaces") or (namespace,)))))
    return tuple(alone), ""


def _avoids(affinity: Raw, namespace: str) -> tuple[Others, ...]:
    """Pods it keeps away from over a zone, a region or the like, and those of rules that are not followed to the letter: of these
    rather too many are meant than too few."""
    found = []
    for term in (affinity.get("podAntiAffinity") or _NOTHING).get(_REQUIRED) or ():
        vague = any(term.get(key) is not None for key in ("namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"))
        if term.get("labelSelector") is not None and (vague or term.get("topologyKey") != HOSTNAME_LABEL):
            everywhere = term.get("namespaceSelector") is not None
            found.append(_meant(term, () if everywhere else tuple(sorted(term.get("namespaces") or (namespace,)))))
    return tuple(found)


def _meant(term: Raw, namespaces: tuple[str, ...]) -> Others:
    selector = term["labelSelector"]
    labels = tuple(Expression(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items()))
    return Others(namespaces, labels + _expressions(selector.get("matchExpressions")))
