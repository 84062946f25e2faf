# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a call needs to be allowed, in words; and how to ask whether we are allowed, before anything is rented."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.files import rbac_file

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+)(?:(?<=/proxy)/.*)?)?)?$"
)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclasses.dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource. ``resource`` may hold a sub-resource ("pods/eviction"); ``namespace`` "" = the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"

    def covers(self, other: Right) -> bool:
        """Whether who has this one may do the other, too."""
        same = (self.verb, self.resource, self.group) == (other.verb, other.resource, other.group)
        return same and self.namespace in ("", other.namespace) and self.name in ("", other.name)

    @property
    def rule(self) -> str:
        """The RBAC rule that grants it."""
        role = f"Role in {self.namespace}" if self.namespace else "ClusterRole"
        return f'{role}: {{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: ["{self.verb}"]}}'


def how_to_grant() -> str:
    """What an administrator does to give all rights at once."""
    return f"kubectl apply -f {rbac_file()} grants them to an account of their own; bind its roles to the user of a kubeconfig."


def of_call(method: str, path: str, *, watch: bool = False) -> Right | None:
    """The right a request needs; None for a path that is not an object's (``/version``)."""
    match = _PATH.match(path)
    if match is None:
        return None
    name, sub = match["name"] or "", match["sub"]
    verb = _VERBS.get(method) or ("watch" if watch else "get" if name else "list")
    resource = f"{match['resource']}/{sub}" if sub else match["resource"]
    return Right(verb, resource, match["group"] or "", match["namespace"] or "", name)


def missing(needed: t.Iterable[Right], have: t.Callable[[Right], bool]) -> list[Right]:
    """Those of ``needed`` that we do not have; ``have`` asks for one, several of them at once."""
    rights = list(needed)
    if not rights:
        return []
    with ThreadPoolExecutor(max_workers=min(8, len(rights))) as pool:
        return [right for right, there in zip(rights, pool.map(have, rights), strict=True) if not there]


def review(right: Right) -> dict[str, t.Any]:
    """The question to the API server whether we have a right, to be created at :data:`REVIEWS`."""
    resource, _slash, sub = right.resource.partition("/")
    attributes = {"verb": right.verb, "resource": resource, "group": right.group}
    for key, value in (("subresource", sub), ("namespace", right.namespace), ("name", right.name)):
        if value:
            attributes[key] = value
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
