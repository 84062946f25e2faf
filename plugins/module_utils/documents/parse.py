# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All documents of one run, checked together: what the user wants, or every fault at once."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

from ..core.errors import InvalidInput
from ..model import CloudChoice, DisruptionBudget, Machine, MeshChoice, NodeClass, Pause, Pool, Source, Specs, Taint
from ..model.labels import API_VERSION, PROVIDER_LABEL
from ..planner import pauses
from ..planner.scheduling.capacity import EPHEMERAL
from ..providers.registry import ENTRIES
from ..units.values import print_duration
from .faults import Document, DocumentOrigin, by_origin, check_class, dotted, faults, forbidden, namespace_of, validator
from .node_class import OWN_MACHINES, node_class
from .node_pool import DISRUPTION_PATH, REQUEST_NAMESPACE, node_pool, request
from .objects import wrong_kind
from .reading import Fault, Reader
from .schemas import KINDS

GROUPS = "node-groups"
_NO_TOLERATION_NEEDED = Taint(EPHEMERAL.key, EPHEMERAL.value, "PreferNoSchedule")  # pods of who brings no documents have none


@dataclasses.dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where documents say nothing."""

    namespace: str = "default"


def parse(
    documents: t.Sequence[Document],
    *,
    defaults: Defaults = Defaults(),
    machines: t.Sequence[Machine] = (),
    nodes: t.Mapping[str, int] | None = None,
    allow_commands: t.Sequence[str] = (),
) -> tuple[Specs, list[str]]:
    """Specs and warnings of ``documents``.

    ``machines``: own machines given otherwise (node groups); classes with a webhook entry that lists none take them, and without any
    document they get a class and a pool of their own. ``nodes``: machines wanted per pool, by "namespace/name" or by an unambiguous name.
    ``allow_commands``: beginnings of commands that the operator's documents may name.
    Raises InvalidInput whose ``problems`` are one sentence per fault: document, place, what is wrong, what to do.
    """
    specs, warnings = understand(documents, defaults=defaults, machines=machines, allow_commands=allow_commands)
    problems = [sentence for sentences in specs.faults.values() for sentence in sentences]
    wanted = _nodes(nodes or {}, {pool.key: pool for pool in specs.described}, problems)
    refuse(problems)
    return dataclasses.replace(specs, nodes=wanted), warnings


def refuse(problems: t.Sequence[str]) -> None:
    """Raise InvalidInput for faults, if there are any."""
    if problems:
        count = len(dict.fromkeys(problems))
        raise InvalidInput(
            f"The documents have {count} fault{'' if count == 1 else 's'}; nothing was done.",
            problems=list(dict.fromkeys(problems)),
        )


def understand(
    documents: t.Sequence[Document],
    *,
    defaults: Defaults = Defaults(),
    machines: t.Sequence[Machine] = (),
    allow_commands: t.Sequence[str] = (),
    machines_from: str = "",
    sources: t.Mapping[str, Source] | None = None,
) -> tuple[Specs, list[str]]:
    """Specs and warnings of what is good, with the faults of everything else. ``machines_from``: the source of ``machines``.
    ``sources``: what was read, whatever it held, with the problems of reading it."""
    documents = by_origin(documents)
    read = _Reading(machines, defaults)
    for document in documents:
        read.look_at(document, allow_commands)
    read.classes_of()
    read.pools_of()
    read.rest_of(allow_commands)
    _place_machines(machines, machines_from, documents, read)
    return read.specs(documents, sources or {}), list(dict.fromkeys(read.warnings))


class _Reading:
    """All documents of one run while they are read. A fault belongs to one document and pauses what that document describes."""

    def __init__(self, machines: t.Sequence[Machine], defaults: Defaults) -> None:
        self.problems: list[Fault] = []
        self.warnings: list[str] = []
        self.classes: dict[str, NodeClass] = {}
        self.pools: dict[str, Pool] = {}
        self.bad_classes: dict[str, str] = {}  # by name, with the first fault
        self.paused: dict[str, str] = {}
        self.deleted: set[str] = set()  # keys of pools and requests
        self._ending: set[str] = set()  # classes that nothing but their deletion stops
        self.pauses: list[Pause] = []
        self.inventory: dict[str, list[str]] = {}  # keys of pools and requests by source
        self.obscure: set[str] = set()  # sources with a document that cannot be identified
        self._machines = machines
        self._namespace = defaults.namespace
        self._good: list[tuple[str, Document]] = []
        self._partly: list[tuple[Document, SoundParts]] = []
        self._first: dict[tuple[bool, str], Document] = {}  # by whether it is a class, and key

    def look_at(self, document: Document, allow_commands: t.Sequence[str]) -> None:
        """Hold the document against its schema and its origin, and note what it is about. One that repeats the name of another of a more
        trusted origin changes nothing about that."""
        before = len(self.problems)
        kind = _kind(document, allow_commands, self.problems)
        subject = _subject(document.mapping, self._namespace)
        if subject is None:
            self.obscure.add(document.source)
            return
        of, key = subject
        if self._first.setdefault((of == "GPUNodeClass", key), document).origin is not document.origin:
            self._two(document, of, key)
            return
        scope = pauses.CLASS if of == "GPUNodeClass" else pauses.POOL
        if (pause := pauses.annotated(scope, key, document.mapping["metadata"])) is not None:
            self.pauses.append(pause)  # also of a document that is faulty otherwise
        if of != "GPUNodeClass":
            self.inventory.setdefault(document.source, []).append(key)
            if document.deletion is not None:
                self.deleted.add(key)
        if kind:
            self._good.append((kind, document))
            self._place_of(kind, key, document)
        else:
            self._note(of, key, self.problems[before].sentence)
            if (parts := sound_parts(of, document.mapping)) is not None:
                self._partly.append((document, parts))

    def _place_of(self, kind: str, key: str, document: Document) -> None:
        """A warning when a document of a kind without namespaces names one, as kustomize writes it."""
        given = document.mapping["metadata"].get("namespace", REQUEST_NAMESPACE)
        if kind != "GPUNodePool" and given != REQUEST_NAMESPACE:
            text = (
                f"a {kind} has no namespace, so {given} does not belong to its name, which is {key}. "
                f"Secrets that it names are in {REQUEST_NAMESPACE} unless they name a namespace."
            )
            self.warnings.append(f"{document.place}: metadata.namespace: {text}")

    def _note(self, kind: str, key: str, problem: str) -> None:
        (self.bad_classes if kind == "GPUNodeClass" else self.paused).setdefault(key, problem)

    def _two(self, document: Document, kind: str, key: str) -> None:
        """A fault: another document has the same name. It stands at the later one and names the first."""
        is_class = kind == "GPUNodeClass"
        first = self._first[is_class, key]
        other = first.field("metadata.name") if first.field else first.place
        self._named_twice(
            document, f"there are two {'classes' if is_class else 'pools'} named {key}, here and in {other}. Rename one."
        )

    def _named_twice(self, document: Document, text: str) -> None:
        self.problems.append(Fault(document.place, text, "metadata.name"))

    def classes_of(self) -> None:
        """The classes; those with faults are kept until the pools are read, which may have faults of their own."""
        for kind, document in self._good:
            if kind != "GPUNodeClass":
                continue
            before = len(self.problems)
            reader = Reader(document.place, self.problems, self.warnings)
            parsed_class = node_class(
                document.mapping, reader, self._machines, of_operator=document.origin is DocumentOrigin.OPERATOR
            )
            if parsed_class.name in self.classes:
                self._two(document, kind, parsed_class.name)
            self.classes[parsed_class.name] = parsed_class
            if len(self.problems) > before:
                self._note(kind, parsed_class.name, self.problems[before].sentence)
            elif document.deletion is not None and parsed_class.name not in self.bad_classes:
                self._note(kind, parsed_class.name, "it is being deleted")
                self._ending.add(parsed_class.name)

    def pools_of(self) -> None:
        """Pools, and requests with their classes."""
        for kind, document in self._good:
            if kind == "GPUNodeClass":
                continue
            before = len(self.problems)
            reader = Reader(document.place, self.problems, self.warnings, namespace_of(document))
            if kind == "GPUNodePool":
                broken = set(self.bad_classes) - set(self.classes)
                pool = node_pool(document.mapping, reader, self.classes, broken, self._namespace)
                check_class(document, pool, self.classes.get(pool.node_class), reader)
            else:
                own_class, pool = request(document.mapping, reader, self._machines)
                if pool.key in self.pools:
                    pass  # said below
                elif own_class.name in self.classes:
                    self._named_twice(document, f"a class named {own_class.name} exists. Rename the request or the class.")
                else:
                    self.classes[own_class.name] = own_class
            _check_lifetime(pool, self.classes.get(pool.node_class), reader)
            _check_stopped(pool, self.classes.get(pool.node_class), reader)
            if pool.key in self.pools:
                self._two(document, kind, pool.key)
            self.pools[pool.key] = dataclasses.replace(
                pool,
                source=document.source,
                source_uid=document.uid,
                document_labels=dict(document.mapping["metadata"].get("labels", {})),
            )
            if len(self.problems) > before:
                self._note(kind, pool.key, self.problems[before].sentence)

    def rest_of(self, allow_commands: t.Sequence[str]) -> None:
        """What else is wrong with documents that their schema refuses. Of what they say nothing is used."""
        for document, parts in self._partly:
            document_faults: list[Fault] = []
            whole = dataclasses.replace(document, mapping=parts.mapping)
            reader = Reader(document.place, document_faults, [], namespace_of(whole))
            kind = parts.mapping["kind"]
            document_faults += forbidden(kind, whole, allow_commands)
            if not document_faults:  # what may not stand there is not followed either: no file is read for an object of the cluster
                self._read_on(kind, parts.mapping, reader)
            self.problems += [fault for fault in document_faults if parts.says(fault.path)]

    def _read_on(self, kind: str, mapping: t.Mapping[str, t.Any], reader: Reader) -> None:
        """Let the reader find what is wrong with the rest."""
        if kind == "GPUNodeClass":
            node_class(mapping, reader, self._machines)
        elif kind == "GPUNodePool":
            node_pool(mapping, reader, self.classes, set(self.bad_classes), self._namespace)
        else:
            request(mapping, reader, self._machines)

    def specs(self, documents: t.Sequence[Document], sources: t.Mapping[str, Source]) -> Specs:
        """What is good may launch; what only its class or its deletion stops is held. A class that is being deleted still says how its
        machines are reached, until they have ended."""
        valid = {key: pool for key, pool in self.pools.items() if key not in self.paused}
        paused = dict(self.paused)
        for key, pool in valid.items():
            if pool.node_class in self.bad_classes:
                paused[key] = f"its class {pool.node_class} cannot be used: {self.bad_classes[pool.node_class]}"
        for key in self.deleted:
            paused.setdefault(key, "its object is being deleted")
        ordered = [valid[key] for key in sorted(valid)]
        unusable = {
            *(set(self.bad_classes) - self._ending),
            *(pool.node_class for key, pool in self.pools.items() if pool.request and key in self.paused),
        }
        read = {name: dataclasses.replace(source, pools=tuple(self.inventory.get(name, ()))) for name, source in sources.items()}
        for name in self.obscure & set(read):
            if not read[name].problem:
                text = f"{name} holds a document whose kind or name cannot be read."
                read[name] = dataclasses.replace(read[name], problem=text)
        return Specs(
            {name: self.classes[name] for name in sorted(self.classes) if name not in unusable},
            tuple(pool for pool in ordered if pool.key not in paused),
            held=tuple(pool for pool in ordered if pool.key in paused),
            paused={key: paused[key] for key in sorted(paused)},
            deleted=frozenset(self.deleted),
            faults=_by_place(self.problems),
            sources={name: read[name] for name in sorted(read)},
            pauses=tuple(sorted(self.pauses, key=lambda pause: (pause.scope, pause.name))),
        )


def _by_place(problems: t.Iterable[Fault]) -> dict[str, tuple[str, ...]]:
    """The faults of each place, each once."""
    by_place: dict[str, dict[str, None]] = {}
    for problem in problems:
        by_place.setdefault(problem.place or "documents", {})[problem.sentence] = None
    return {place: tuple(sentences) for place, sentences in by_place.items()}


def _subject(document: t.Mapping[str, t.Any], namespace: str) -> tuple[str, str] | None:
    """Kind and key of a document that may be faulty; None when one of them cannot be read."""
    kind, meta = document.get("kind"), document.get("metadata")
    name = meta.get("name") if isinstance(meta, t.Mapping) else None
    if kind not in KINDS or not isinstance(name, str) or not name:
        return None
    if kind == "GPUNodeClass":
        return kind, name
    if kind == "GPURequest":
        return kind, f"{REQUEST_NAMESPACE}/{name}"
    place = t.cast("t.Mapping[str, t.Any]", meta).get("namespace", namespace)
    return (kind, f"{place}/{name}") if isinstance(place, str) and place else None


def _kind(document: Document, allow_commands: t.Sequence[str], problems: list[Fault]) -> str:
    """The document's kind if it is valid by its schema and says what its origin may; otherwise its faults are noted."""
    source, kind = document.place, document.mapping.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        problems.append(Fault(source, wrong_kind(kind, document.mapping.get("apiVersion")), "kind"))
        return ""
    document_faults = [Fault(source, text) for text in faults(kind, document.mapping)] or forbidden(kind, document, allow_commands)
    problems += document_faults
    return "" if document_faults else kind


def _place_machines(machines: t.Sequence[Machine], machines_from: str, documents: t.Sequence[Document], read: _Reading) -> None:
    """Own machines that no class lists."""
    classes = read.classes
    if machines and not documents:
        choice = CloudChoice(OWN_MACHINES, machines=tuple(machines))
        classes[GROUPS] = NodeClass(GROUPS, (choice,), mesh=MeshChoice(backend="none"), max_nodes=len(machines))
        pool = Pool(
            "default",
            GROUPS,
            GROUPS,
            taints=(_NO_TOLERATION_NEEDED,),
            idle_mode="gpu",
            disruption_budgets=(DisruptionBudget("1"),),  # one at a time, as k8s-gpu-autoprovision does
            source=machines_from,
        )
        read.pools[pool.key] = pool
        read.inventory.setdefault(machines_from, []).append(pool.key)
        return
    taken = {machine.name for gpu_class in classes.values() for choice in gpu_class.clouds for machine in choice.machines}
    lost = [machine.name for machine in machines if machine.name not in taken]
    if lost and not read.problems:
        text = f"node groups: no GPUNodeClass takes {', '.join(lost)}. Add a providers entry `name: webhook` without machines."
        read.problems.append(Fault("", text))
    _one_owner(read)


def _one_owner(read: _Reading) -> None:
    """A machine in two classes would be switched by both."""
    owners: dict[str, str] = {}
    for name in sorted(read.classes):
        for machine in (listed_machine for choice in read.classes[name].clouds for listed_machine in choice.machines):
            owner = owners.setdefault(machine.name, name)
            if owner != name:
                text = f"machine {machine.name}: the classes {owner} and {name} both have it. Keep it in one."
                read.problems.append(Fault("", text))
                for key in (owner, name):
                    read.bad_classes.setdefault(key, text)


def _nodes(nodes: t.Mapping[str, int], pools: t.Mapping[str, Pool], problems: list[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for name, count in nodes.items():
        keys = [key for key, pool in pools.items() if name in (key, pool.name)]
        if len(keys) != 1:
            listed = ", ".join(sorted(keys or pools)) or "none"
            fault = "names several pools" if keys else "is not a pool"
            problems.append(f"nodes: {name} {fault}. {'Say which of' if keys else 'Known are'}: {listed}.")
        elif isinstance(count, bool) or not isinstance(count, int) or count < 0:
            problems.append(f"nodes: {name}: {count!r} is not a number of machines.")
        elif pools[keys[0]].request and count != 1:
            problems.append(f"nodes: {name} is a GPURequest, which is always one machine.")
        else:
            wanted[keys[0]] = count
    return wanted


# ---- A document with faults without them, so that the rest of it can be read as well and every fault is reported in one run

_Steps = tuple[t.Union[str, int], ...]
_MOST_ROUNDS = 8  # what is removed may have been required by what is around it
_STAND_INS: t.Mapping[_Steps, t.Any] = {
    ("apiVersion",): API_VERSION,
    ("metadata",): {"name": "unknown"},
    ("metadata", "name"): "unknown",
    ("spec", "nodeClassRef"): {"name": "unknown"},
    ("spec", "nodeClassRef", "name"): "unknown",
    ("spec", "gpuType"): "A100",
}


@dataclasses.dataclass(frozen=True, slots=True)
class SoundParts:
    """``mapping`` is valid by the schema of its kind. ``left_out``: the places of what is not in it, or stands in for something else."""

    mapping: t.Mapping[str, t.Any]
    left_out: frozenset[str]

    def says(self, path: str) -> bool:
        """Whether a fault at ``path`` is one of the document, and not of what was left out."""
        return not any(_within(path, name) or _within(name, path) for name in self.left_out)


def sound_parts(kind: str, document: t.Mapping[str, t.Any]) -> SoundParts | None:
    """What is right by the schema; None when too little is."""
    made = t.cast("dict[str, t.Any]", _with_text_keys(document))
    left_out: set[str] = set()
    for _round in range(_MOST_ROUNDS):
        wrong = {steps for error in validator(KINDS[kind]).iter_errors(made) for steps in _wrong(error)}
        if not wrong:
            return SoundParts(made, frozenset(left_out))
        for steps in sorted(wrong, key=len, reverse=True):
            if not _leave_out(made, steps):
                return None
            left_out.add(dotted(steps))
    return None


def _with_text_keys(value: t.Any) -> t.Any:
    """A copy without the keys that YAML takes for something else than text (on, yes, 1): their own fault is reported."""
    if isinstance(value, t.Mapping):
        return {key: _with_text_keys(inner) for key, inner in value.items() if isinstance(key, str)}
    return [_with_text_keys(entry) for entry in value] if isinstance(value, list) else copy.deepcopy(value)


def _wrong(error: t.Any) -> t.Iterator[_Steps]:
    """What has to go for this error to go: the field, or the whole list in which it is, so that no other place changes."""
    at: _Steps = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        yield from ((*at, name) for name in set(error.instance) - set(error.schema.get("properties", {})))
        return
    if error.validator == "required":
        missing = [(*at, name) for name in error.validator_value if name not in error.instance]
        if all(steps in _STAND_INS for steps in missing):
            yield from missing
            return
    while at and isinstance(at[-1], int):
        at = at[:-1]
    yield at


def _leave_out(document: dict[str, t.Any], steps: _Steps) -> bool:
    """False when nothing would be left, or it is gone already with something around it."""
    if not steps or steps == ("spec",):
        return False
    here: t.Any = document
    for step in steps[:-1]:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            return True
    if not isinstance(here, dict):
        return True
    here.pop(steps[-1], None)
    if steps in _STAND_INS:
        here[t.cast(str, steps[-1])] = copy.deepcopy(_STAND_INS[steps])
    return True


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


# ---- the longest life that a cloud gives a machine, beside the one that a pool wants: the cloud ends it without notice to its pods


def _check_lifetime(pool: Pool, node_class: NodeClass | None, reader: Reader) -> None:
    """A fault when a cloud of the class deletes a machine before its pool lets it expire, a warning when it does so within the grace
    period. A cloud that no document names is not looked at."""
    if pool.expire_after is None or node_class is None:
        return
    path = "spec.maxLifetime" if pool.request else f"{DISRUPTION_PATH}.expireAfter"
    for choice in node_class.clouds:
        longest = ENTRIES[choice.cloud].longest_life
        if longest is None or not choice.enabled or choice.implicit or not _may_rent(pool, choice):
            continue
        setting, hours = longest(choice.settings)
        ends, wanted = print_duration(hours * 3600), print_duration(pool.expire_after)
        if pool.expire_after > hours * 3600:
            reader.fault(
                path,
                f"{choice.cloud} deletes a machine after {ends} ({setting} of class {node_class.name}), so none lives {wanted}, and pods get "
                f"no notice. Shorten it, or raise {setting}.",
            )
        elif pool.expire_after + pool.termination_grace > hours * 3600:
            reader.warn(
                path,
                f"{choice.cloud} deletes a machine after {ends} ({setting} of class {node_class.name}): that is within the grace period "
                f"of a node that expires after {wanted}.",
            )


def _may_rent(pool: Pool, choice: CloudChoice) -> bool:
    """Whether the requirements of the pool leave it the cloud."""
    if pool.cloud and pool.cloud != choice.cloud:
        return False
    named = [(requirement.operator, requirement.values) for requirement in pool.requirements if requirement.key == PROVIDER_LABEL]
    return all((choice.cloud in values) is (operator == "In") for operator, values in named if operator in ("In", "NotIn"))


# ---- when what is left of own machines goes that are stopped (L-54)


def _check_stopped(pool: Pool, node_class: NodeClass | None, reader: Reader) -> None:
    """A fault when no machine of the class can be stopped without being deleted."""
    if pool.delete_stopped_after is None or pool.service is not None or node_class is None:
        return
    if not any(choice.cloud == OWN_MACHINES and choice.enabled for choice in node_class.clouds):
        reader.fault(
            f"{DISRUPTION_PATH}.deleteStoppedAfter",
            f"there are no own machines in class {node_class.name}. A rented one is billed while it is stopped, so it is never stopped: it is "
            "deleted as soon as it goes. Remove this field, or use a class that lists own machines.",
        )
