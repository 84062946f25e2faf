# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines of a tgp-operator installation may be adopted, and into which pool (L-49).

Until v0.1.0 it records a machine in the status of a GPURequest, from v0.1.3 on in labels and annotations of a Node that it creates. The kubelet
of a later release may register under another name than that Node, with the labels of the pool alone.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...model import Instance, Node
from ...model.labels import CLUSTER_LABEL, INSTANCE_ID_LABEL, NODEPOOL_LABEL, PROVIDER_LABEL, PROVISIONED_LABEL
from ...model.names import label_value
from ..cluster_state import Situation
from ..garbage_collection.ownership import Ownership
from .moving import is_imported, record_of

_ENDING = "Terminating"  # the phase of a GPURequest whose machine is being terminated
# the names that its releases give machines, by provider
_NAMES: t.Final[dict[str, re.Pattern[str]]] = {
    "gcp": re.compile(r"tgp-.+-\d{10}"),
    "lambda": re.compile(r"tgp-instance-\d{10}"),
    "runpod": re.compile(r"tgp-.+-\d{10}"),
    "vultr": re.compile(r"tgp-(NVIDIA|AMD)_\w+"),
}

Canonical = t.Callable[[str], "str | None"]


@dataclasses.dataclass(frozen=True)
class OperatorRequest:
    """A GPURequest of tgp-operator. ``provider`` is its word; ``problem``: why the object cannot be read, empty = it can."""

    name: str
    provider: str = ""
    instance_id: str = ""
    node: str = ""
    phase: str = ""
    deleting: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class OperatorPool:
    """A GPUNodePool of tgp-operator, by name; its Nodes have this name as a label, whatever its namespace."""

    name: str
    namespace: str
    deleting: bool = False


@dataclasses.dataclass(frozen=True)
class Installation:
    """What there is of tgp-operator in the cluster. ``controllers``: what runs of its controller, in words."""

    requests: tuple[OperatorRequest, ...] = ()
    pools: tuple[OperatorPool, ...] = ()
    controllers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ImportRow:
    """A machine that ``source`` names. ``problem``: why it is not adopted; empty = it is to be examined like any that a person names."""

    source: str
    cloud: str = ""
    id: str = ""
    node: str = ""
    pool: str = ""
    problem: str = ""


def candidates(found: Installation, situation: Situation, pool: str, canonical: Canonical) -> tuple[ImportRow, ...]:
    """Each machine once, in the order of what names it: GPURequests, Nodes, claims of an earlier import, machines that nothing names.

    ``pool``: of those whose objects name none. ``canonical``: our word for a provider, None = unknown.
    """
    survey = _Survey(found, situation, pool, canonical)
    rows = [*survey.requests(), *survey.nodes()]
    known = {(row.cloud, row.id) for row in rows if row.id}
    rows += [row for row in survey.claims() if (row.cloud, row.id) not in known]
    known |= {(row.cloud, row.id) for row in rows if row.id}
    return (*rows, *(row for row in survey.unnamed() if (row.cloud, row.id) not in known))


class _Survey:
    def __init__(self, found: Installation, situation: Situation, pool: str, canonical: Canonical) -> None:
        self._found, self._situation, self._pool, self._canonical = found, situation, pool, canonical
        self._by_id = {(one.cloud, one.id): one for one in situation.listed()}
        self._seen: set[tuple[str, str]] = set()

    def requests(self) -> t.Iterator[ImportRow]:
        for request in self._found.requests:
            row = self._request(request)
            if row.id and not row.problem and (row.cloud, row.id) in self._seen:
                row = dataclasses.replace(row, problem="another GPURequest names this machine, too")
            self._seen.add((row.cloud, row.id))
            yield row

    def _request(self, request: OperatorRequest) -> ImportRow:
        source, cloud = f"GPURequest {request.name}", self._canonical(request.provider) or ""
        row = ImportRow(source, cloud or request.provider, request.instance_id, request.node, self._pool)
        if request.problem:
            problem = request.problem
        elif request.deleting:
            problem = "the object is being deleted: as soon as its controller runs, it terminates the machine"
        elif request.phase == _ENDING:
            problem = f"its phase is {_ENDING}: tgp-operator has asked its provider to end the machine"
        elif not request.instance_id:
            problem = f"it has no machine yet (phase {request.phase or 'none'})"
        else:
            problem = self._of_provider(request.provider, cloud)
        return self._placed(dataclasses.replace(row, problem=problem))

    def _of_provider(self, word: str, cloud: str) -> str:
        if not word:
            return "no provider is named"
        return "" if cloud else f"the provider {word} is unknown here"

    def _placed(self, row: ImportRow) -> ImportRow:
        """With the pool of its claim where it was adopted already, else with the Node that a kubelet keeps."""
        if row.problem or not row.id:
            return row
        instance = self._by_id.get((row.cloud, row.id))
        claim = record_of(instance, self._situation) if instance is not None else None
        if claim is not None:
            return dataclasses.replace(row, pool=claim.pool, node="")
        if (row.cloud, row.id) in self._situation.store.released:
            return dataclasses.replace(row, problem="it was handed out (release.yml); adopt.yml with its id adopts it again")
        if not row.pool:
            return dataclasses.replace(row, problem="its object names no pool; say into which one")
        return dataclasses.replace(row, node=self._living(row.node, instance))

    def _living(self, name: str, instance: Instance | None) -> str:
        """The Node that runs on the machine: ``name``, or the only Ready one with the address of the machine where no kubelet keeps that."""
        node = self._situation.nodes_by_name.get(name)
        if instance is None or node is not None and node.ready:
            return name
        others = [one for one in self._situation.nodes or () if one.ready and _addresses(instance) & set(one.addresses)]
        if len(others) == 1:
            return others[0].name
        return name if node is not None else ""

    # ---- Nodes

    def nodes(self) -> t.Iterator[ImportRow]:
        theirs = [node for node in self._situation.nodes or () if _is_theirs(node)]
        claimed = {claim.node_name for claim in self._situation.claims}
        for node in sorted(theirs, key=lambda one: (not _instance_id(one), one.name)):  # those that name their machine come first
            if node.name in claimed:
                continue
            row = self._node(node)
            if row.id and (row.cloud, row.id) in self._seen:
                continue  # an object without a kubelet, and the Node of the kubelet
            self._seen.add((row.cloud, row.id))
            yield row

    def _node(self, node: Node) -> ImportRow:
        word, identity = _mark(node, PROVIDER_LABEL), _instance_id(node)
        cloud = (self._canonical(word) or "") if word else ""
        row = ImportRow(f"Node {node.name}", cloud or word, identity, node.name)
        if identity:
            problem = self._of_provider(word, cloud)
        else:
            row, problem = self._by_address(row, node, cloud)
        pool, of_pool = self._pool_of(node)
        return self._placed(dataclasses.replace(row, pool=pool, problem=problem or of_pool))

    def _by_address(self, row: ImportRow, node: Node, cloud: str) -> tuple[ImportRow, str]:
        """The machine of a Node that names none. A private address counts where the machine has a name that tgp-operator gives, since machines
        of other accounts may have the same one."""
        unlisted = [one for one in self._situation.unlisted if cloud in ("", one)]
        if unlisted:
            return row, f"its machine is unknown, because {', '.join(unlisted)} could not be listed"
        found = [
            one
            for one in self._by_id.values()
            if (not cloud or one.cloud == cloud) and self._situation.rented(one.cloud) and not one.gone
            if one.name == node.name or _addresses(one) & set(node.addresses)
        ]
        if len(found) == 1:
            return dataclasses.replace(row, cloud=found[0].cloud, id=found[0].id), ""
        if found:
            return row, f"{len(found)} machines have its name or its address; adopt it by its id (adopt.yml)"
        return row, "no machine of the providers has its name or its address; adopt it by its id (adopt.yml)"

    def _pool_of(self, node: Node) -> tuple[str, str]:
        """Pool, and what speaks against it."""
        label = node.labels.get(NODEPOOL_LABEL, "")
        if not label:
            return self._pool, ""
        if any(pool.deleting and label_value(pool.name) == label for pool in self._found.pools):
            return label, f"its GPUNodePool {label} is being deleted: as soon as its controller runs, it deletes the Node"
        keys = {pool.key for pool in self._situation.specs.pools if not pool.request and label_value(pool.name) == label}
        if self._pool and {one for one in keys if self._pool in (one, one.partition("/")[2])}:
            return self._pool, ""  # it says which of several pools of this name
        return (next(iter(keys)) if len(keys) == 1 else label), ""

    # ---- the others

    def claims(self) -> t.Iterator[ImportRow]:
        for claim in self._situation.claims:
            if is_imported(claim) and claim.deletion is None:
                yield ImportRow(f"claim {claim.name}", claim.cloud, claim.instance_id, "", claim.pool)

    def unnamed(self) -> t.Iterator[ImportRow]:
        """Machines with a name that tgp-operator gives, and that no object refers to. They are billed, and no controller manages them."""
        for instance in sorted(self._by_id.values(), key=lambda one: (one.cloud, one.id)):
            if instance.gone or not _named_by_it(instance):
                continue
            if record_of(instance, self._situation) is None and self._situation.ownership(instance) is Ownership.UNRELATED:
                yield ImportRow(
                    f"machine {instance.name}",
                    instance.cloud,
                    instance.id,
                    problem="its name is one that tgp-operator gives, and no object names it; adopt it by its id (adopt.yml), or end it "
                    "at its provider",
                )


def _named_by_it(instance: Instance) -> bool:
    pattern = _NAMES.get(instance.cloud)
    return pattern is not None and pattern.fullmatch(instance.name) is not None


def _addresses(instance: Instance) -> set[str]:
    return {instance.ip, instance.private_ip if _named_by_it(instance) else ""} - {""}


def _is_theirs(node: Node) -> bool:
    if CLUSTER_LABEL in node.labels:
        return False  # of this collection, in this cluster or another one
    return bool(_instance_id(node)) or (NODEPOOL_LABEL in node.labels and node.labels.get(PROVISIONED_LABEL) == "true")


def _instance_id(node: Node) -> str:
    return _mark(node, INSTANCE_ID_LABEL)


def _mark(node: Node, key: str) -> str:
    """An annotation holds what a label cannot, such as the id of a machine at Google."""
    return node.annotations.get(key) or node.labels.get(key, "")
