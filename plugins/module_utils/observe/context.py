# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything one module call of the fleet family works with, opened once: cluster, records, documents, clouds, mesh, lock.

Nothing is connected before it is needed, so a refusal of the documents costs no call, and a cloud that is down hurts only itself.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime

from ..core.clock import Clock, others_ahead
from ..core.errors import ApiError, InvalidInput
from ..core.events import Events, Progress, new_run_id
from ..core.files import events_path
from ..core.notifications import Sender
from ..core.task import Task
from ..documents.node_class import budget_of
from ..documents.parse import refuse
from ..kube.auth.credentials import connect as connect_cluster
from ..kube.client import Kube, cluster_id, ensure_namespace, read_secret
from ..kube.needed_rights import NAMESPACES, OBJECTS, TOKENS, WHOLE, pool_features, record_features, rights_of
from ..kube.nodes import nodes
from ..kube.pods import namespace_labels
from ..kube.rbac import Right
from ..kube.resource_claims import device_slices
from ..metrics.publish import Recorder, attend
from ..model import Node, NodeClass, Pool, Specs, SpendingBudget
from ..model.defaults import REAPING, SYSTEM_NAMESPACES, Settings
from ..model.labels import REQUESTER_LABEL, TEAM_LABEL
from ..model.resources import GPU_RESOURCES
from ..model.spec import DRAIN_TIMEOUT
from ..planner import clock_skew
from ..planner.scheduling.devices import with_devices
from ..providers.registry import CAPABILITIES
from ..store.open_store import open_store
from ..store.records import ClaimStore
from ..store.run_lock import held
from ..talos.validation.rules import key_problem, value_problem
from ..units.values import parse_money
from .audit import KubeTeller, told_store
from .clients import Clients, Once, secret_of_notices
from .documents import hub_secrets, load, with_hubs
from .people import SECRET_KEY, People
from .records import Records
from .release_tables import use_release_tables


class Lock(t.Protocol):
    """What acting code needs of the run lock."""

    def renew_if_due(self) -> None: ...

    def confirm(self) -> None: ...


class NoLock:
    """For runs that only read."""

    def renew_if_due(self) -> None:
        """Nothing is held."""

    def confirm(self) -> None:
        """Nothing is held."""


class Clocks:
    """How far our clock is from those of the API server and the clouds, by their answers since ``began`` (core/task.py)."""

    def __init__(self, clock: Clock, began: float) -> None:
        self._clock = clock
        self._began = began

    def offset(self) -> tuple[str, float] | None:
        """Whose clock (the API server's, a cloud's) differs most from ours, and by how many seconds it is ahead; None when none has said."""
        return others_ahead(self._clock, {"kubernetes", *CAPABILITIES}, self._began)

    def problem(self) -> str:
        """What is to be said of our clock when it is wrong (L-27); empty when it is right, or not known to be wrong."""
        source, offset = self.offset() or ("", 0.0)
        return clock_skew.told(offset, source) if clock_skew.is_wrong(offset) else ""

    def billed_now(self) -> datetime:
        """This moment by the clock of those who write the bills, where ours is known to be wrong."""
        return self.billed(self._clock.now())

    def billed(self, moment: datetime) -> datetime:
        """The same of another moment by our clock."""
        _source, offset = self.offset() or ("", None)
        return clock_skew.corrected(moment, offset)


@dataclasses.dataclass
class Context:
    """One opened world. ``specs`` may be empty (a teardown needs no documents).

    ``metrics``: takes what the run knows, where anybody reads metrics. ``records``: what is written beside the claims; ``clients``: clouds and
    mesh; ``clocks``: those of others; ``once``: other values that are read once per call.
    """

    task: Task
    kube: Kube
    store: ClaimStore
    specs: Specs
    settings: Settings
    cluster_id: str
    run_id: str
    progress: Progress
    lock: Lock = dataclasses.field(default_factory=NoLock)
    metrics: Recorder | None = None
    people: People | None = None

    def __post_init__(self) -> None:
        self.clock = self.task.clock
        self.once = Once()
        self.clocks = Clocks(self.clock, self.task.began)
        self.records = Records(self.store, self.clock, self.cluster_id, self.warn)
        self.clients = Clients(self.task, self.kube, lambda: self.specs, self.records.known_claims)

    def drain_timeout(self, pool: Pool | None) -> int:
        return pool.drain_timeout if pool else DRAIN_TIMEOUT

    def template_of(self, node_class: NodeClass) -> str | None:
        """The Talos template of a class: inline, or a key of a Kubernetes Secret; None when it has none."""
        if node_class.template is not None or node_class.template_ref is None:
            return node_class.template
        ref = node_class.template_ref
        return self.once(("template", ref), lambda: read_secret(self.kube, ref.namespace, ref.name, ref.key))

    def warn(self, text: str) -> None:
        self.task.warn(text)

    def refresh(self) -> None:
        """Forget what was read before another run ended that this one waited for."""
        self.clients.refresh()
        self.records.refresh()

    def close(self) -> None:
        self.clients.close()


# ---- opens a :class:`Context` for a module call, cheapest checks first

_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def open_context(
    task: Task,
    *,
    settings: Settings | None = None,
    documents_required: bool = True,
    strict: bool = False,
    read_only: bool = False,
    hubs: bool = False,
) -> Context:
    """Everything a fleet module works with. The documents are checked before the first call to anybody. ``read_only``: nothing is changed,
    so nothing is written to the event log. ``hubs``: read what classes have of their hubs in Secrets; else a hub may be unknown.

    Raises InvalidInput when documents are missing although they are required. One that is faulty, or cannot be read, stops nothing but
    what it describes, and is listed in the specs; ``strict``: it is refused, too.
    """
    metrics = None if read_only else attend(task)
    use_release_tables(task)
    kube = connect_cluster(task)
    kube.needs = _needed(task)
    specs = load(task, kube, strict=strict)
    if used := pool_features(specs.described) | ({NAMESPACES} if task.params.get("namespace_teams") else set()):
        kube.needs = _needed(task, *sorted(used))
    if documents_required and not specs.pools:
        _refuse_without_pools(task, specs, settings)
    Sender(task)  # says what is wrong with its options
    task.late_token = lambda: secret_of_notices(task, kube, "notify-token")
    people = People(task, lambda: secret_of_notices(task, kube, SECRET_KEY))
    task.tell_people = people.tell_at_once
    run_id = task.params.get("run_id") or new_run_id()
    if task.events is None and not task.check_mode and not read_only:
        task.events = Events(events_path(task.params), task.clock, run_id, fresh=not task.params.get("run_id"), warn=task.warn)
    progress = Progress(task.progress, task.clock, task.events)
    store = open_store(task, kube)
    if task.events is not None:
        kube.teller, store = KubeTeller(task), told_store(store, task)
    task.cluster_id = cluster_id(kube, task.params.get("cluster_id"))
    if hubs and hub_secrets(specs.classes.values()):
        specs = with_hubs(specs, kube)
        if strict:
            refuse([sentence for sentences in specs.faults.values() for sentence in sentences])
        if documents_required and not specs.pools:
            _refuse_without_pools(task, specs, settings)
    return Context(
        task=task,
        kube=kube,
        store=store,
        specs=specs,
        settings=settings or settings_of(task),
        cluster_id=task.cluster_id,
        run_id=run_id,
        progress=progress,
        metrics=metrics,
        people=people,
    )


def locked_run(
    task: Task, work: t.Callable[[Context, bool], dict[str, t.Any]], *, apply: bool = True, documents_required: bool = True
) -> dict[str, t.Any]:
    """The result of ``work(context, writes)``. A run in progress ends first: ``lock_wait`` seconds at most, then Locked.

    ``writes`` True: it has the run lock (``context.lock``), and reads anew what that run may have changed. False, without a lock: in check
    mode and without ``apply``.
    """
    context = open_context(task, documents_required=documents_required)
    try:
        if not apply or task.check_mode:
            return work(context, False)
        ensure_namespace(context.kube)
        with held(task, context.kube, context.run_id, context.cluster_id) as context.lock:
            context.refresh()
            return work(context, True)
    finally:
        context.close()


def _needed(task: Task, *more: str) -> tuple[Right, ...]:
    """What the playbook of this task does in the cluster, or what fleet_validate is to look for: the first refusal then names all of it that
    is missing. ``more``: features that the documents use."""
    features = {TOKENS, *more, *record_features(task.params.get("claim_store"))}
    if task.params.get("documents_from_cluster"):
        features.add(OBJECTS)
    playbooks = (task.params["rights_of"] or [WHOLE]) if "rights_of" in task.params else [task.playbook]
    return tuple(dict.fromkeys(right for playbook in playbooks for right in rights_of(playbook, features, asked=True)))


def _refuse_without_pools(task: Task, specs: Specs, settings: Settings | None) -> None:
    """A run that only launches has nothing to do without a pool. One that reaps has, as soon as any documents were given."""
    if settings is not None and settings.mode in REAPING and (task.params["documents"] or task.params["documents_from_cluster"]):
        return
    refuse(
        [source.problem for source in specs.sources.values() if source.problem and not source.quiet]
        + [sentence for sentences in specs.faults.values() for sentence in sentences]
    )
    if specs.paused:
        stopped = "; ".join(f"{key}: {why}" for key, why in sorted(specs.paused.items()))
        raise InvalidInput(
            f"No pool among the documents may launch, so there is nothing to do. {stopped}.",
            remedy="reap.yml ends the machines of an object that is being deleted; create the object again when it has gone.",
        )
    raise InvalidInput(
        "There is no pool among the documents, so there is nothing to do.",
        remedy=f"Give {task.called('documents')} (a file or folder with GPUNodeClass and GPUNodePool), or set documents_from_cluster.",
    )


def settings_of(task: Task) -> Settings:
    """The rules' defaults with what the options change."""
    params = task.params
    total = params.get("max_hourly_total")
    try:
        hourly = None if total in (None, "") else parse_money(total)
    except InvalidInput as error:
        raise InvalidInput(
            f"max_hourly_total {total!r} is not an amount.", remedy='Write a decimal string, for example "12.50".'
        ) from error
    most = params.get("max_remove_per_run")
    if most is not None and most < 0:
        raise InvalidInput(f"max_remove_per_run is {most}.", remedy="Give a whole number, 0 or more.")
    remedy = "Write domain/name, for example gpu.intel.com/i915."
    resources = _names(params, "gpu_resources", _RESOURCE, "an extended resource", remedy)
    remedy = "Write one name for each entry. Patterns are not read."
    namespaces = _names(params, "idle_ignore_namespaces", _NAMESPACE, "a namespace", remedy)
    return Settings(
        max_remove_per_run=most,
        ignore_blocklist=bool(params.get("ignore_blocklist")),
        allow_mass_delete=bool(params.get("allow_mass_delete")),
        orphan_policy=params.get("orphan_policy") or "destroy",
        report_foreign=bool(params.get("report_foreign")),
        gpu_resources=tuple(dict.fromkeys((*GPU_RESOURCES, *resources))),
        ignore_namespaces=tuple(dict.fromkeys((*SYSTEM_NAMESPACES, *namespaces))),
        team_label=_label(params, "team_label", TEAM_LABEL),
        requester_label=_label(params, "requester_label", REQUESTER_LABEL),
        namespace_teams=bool(params.get("namespace_teams")),
        max_nodes_total=params.get("max_nodes_total"),
        max_hourly_total=hourly,
        budget=_budget(params.get("budget")),
        team_budgets=_team_budgets(params.get("team_budgets") or ()),
    )


def _names(params: t.Mapping[str, t.Any], option: str, form: re.Pattern[str], kind: str, remedy: str) -> list[str]:
    """The names that an option lists, each in the form of ``kind``."""
    names = [entry.strip() for entry in params.get(option) or ()]
    for name in names:
        if not form.fullmatch(name):
            raise InvalidInput(f"{option}: {name!r} is not the name of {kind}.", remedy=remedy)
    return names


def _label(params: t.Mapping[str, t.Any], option: str, usual: str) -> str:
    """A key of labels."""
    key = str(params.get(option) or usual)
    if key != usual and (problem := key_problem(key)):
        raise InvalidInput(f"{option}: {problem}", remedy=f"Write a key like {usual}.")
    return key


def _budget(spec: t.Mapping[str, t.Any] | None) -> SpendingBudget | None:
    """The option ``budget``: what the whole cluster may cost in a period."""
    if not spec:
        return None
    if not 1 <= spec["soft_percent"] <= 100:
        raise InvalidInput(f"budget.soft_percent must be between 1 and 100, got {spec['soft_percent']}.")
    return budget_of(spec["period"], spec["amount"], spec["time_zone"], spec["soft_percent"], spec["action"])


def _team_budgets(entries: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[tuple[str, SpendingBudget], ...]:
    """The option ``team_budgets``: what each team may spend in a period."""
    found: dict[tuple[str, str], SpendingBudget] = {}
    for number, spec in enumerate(entries):
        team, where = spec["team"], f"team_budgets[{number}]"
        if problem := "is empty." if not team else value_problem(team):
            raise InvalidInput(f"{where}.team: {problem}", remedy="Write the value of the label that pods of the team have.")
        if (team, spec["period"]) in found:
            raise InvalidInput(
                f"{where}: team {team} has two budgets per {spec['period']}.", remedy="Give a team one budget for each period."
            )
        try:
            budget = _budget({**spec, "action": "stop_launch"})
        except InvalidInput as error:
            raise InvalidInput(f"{where}, team {team}: {error.message}", remedy=error.remedy) from error
        found[team, spec["period"]] = t.cast(SpendingBudget, budget)
    return tuple((team, budget) for (team, _period), budget in sorted(found.items()))


# ---- GPUs that DRA drivers hand out (L-38)


def uses_dra(context: Context) -> bool:
    """Whether GPUs of some pool, or of the machine of some claim, are devices of a DRA driver. Who names machines to end asks for none."""
    if context.settings.mode == "destroy":
        return False
    claims = (claim.limits for claim in context.records.known_claims() if claim.limits is not None)
    return any(pool.dra_driver for pool in context.specs.described) or any(limits.dra_driver for limits in claims)


def nodes_with_devices(context: Context) -> list[Node]:
    """The Nodes as they are now, with the GPUs of DRA drivers."""
    found = nodes(context.kube)
    return list(with_devices(found, (), device_slices(context.kube)).nodes) if uses_dra(context) else found


# ---- for which team pods run (L-45)


def labels_of_namespaces(context: Context) -> dict[str, t.Mapping[str, str]] | None:
    """The labels of namespaces, None when they could not be read."""
    try:
        return namespace_labels(context.kube)
    except ApiError as error:
        context.warn(
            f"The namespaces could not be read, so the team of pods without a label of their own is unknown (L-45): {error}"
        )
        return None
