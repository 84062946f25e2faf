# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_validate: every check that can be made without changing anything, and all its findings at once."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core.errors import InvalidCredential, InvalidInput, TgpError
from ..core.events import render
from ..core.task import Task
from ..kube.needed_rights import WHOLE
from ..kube.nodes import device_plugins
from ..kube.nodes import nodes as read_nodes
from ..mesh.connect import connect as connect_mesh
from ..model import CloudChoice, HubSecrets, Lane, Node, NodeClass, Pool, Specs
from ..observe.clients import unused
from ..observe.context import Context, open_context
from ..observe.documents import hub_secrets, load, with_hubs
from ..observe.gather import cluster_facts
from ..observe.release_tables import use_release_tables
from ..operations.launch.payload import image_sentence, policy_of
from ..planner.offers import account_volumes
from ..planner.offers.ranking import accepted_lanes
from ..planner.scheduling.device_plugins import NONE, UNKNOWN, YES, answer
from ..preflight.endpoint_check import check_endpoint
from ..preflight.policy_check import check_policy
from ..preflight.preflight import (
    check_clock,
    check_mesh,
    check_rights,
    check_services,
    makes_nodes,
    service_pools,
    template_faults,
    template_warnings,
)
from ..preflight.release_check import check_releases
from ..preflight.render_check import official_extensions, rehearsal_faults, server_version
from ..providers.base import CloudCheck
from ..providers.disk_images import ImagePolicy
from ..providers.registry import ENTRIES
from ..providers.registry import connect as connect_cloud

OK, WARN, NO = "ok", "warn", "NO"
DEVICE_PLUGIN = "device plugin"
_ANY = "any pool"
_COLUMNS = {"mark": "", "what": "check", "message": "finding"}
_Check = tuple[str, t.Callable[[], str | CloudCheck]]


def validate(task: Task) -> dict[str, t.Any]:
    """The result of fleet_validate. InvalidInput lists everything that is wrong; the documents come first and end it at once."""
    only = task.params.get("only")
    use_release_tables(task)  # a faulty file ends it, with or without a cluster
    try:
        context = open_context(task, strict=True, documents_required=only is None)
    except TgpError as error:
        if only is not None:
            raise
        return _result(task, _run(_without_cluster(task, error)))
    try:
        if only is None:
            context.specs = with_hubs(context.specs, context.kube)
        return _result(task, _run(_checks(context) if only is None else [(DEVICE_PLUGIN, lambda: _device_plugin(context))]))
    finally:
        context.close()


def _result(task: Task, checks: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    for line in render([row for check in checks for row in _rows(check)], _COLUMNS):
        task.progress(line)
    for check in checks:
        for text in check["warnings"]:
            task.warn(f"{check['what']}: {text}")
    wrong = [f"{check['what']}: {check['message']}" for check in checks if not check["ok"]]
    if wrong:
        raise InvalidInput("The set-up is not complete:", problems=wrong, result={"checks": checks})
    return {"changed": False, "checks": checks}


def _rows(check: dict[str, t.Any]) -> list[dict[str, str]]:
    """One row for the check, and one for each further line of what was found."""
    lines = [*check["message"].splitlines(), *check["warnings"]] or [""]
    first = {"mark": check["status"], "what": check["what"], "message": lines[0]}
    return [first, *({"mark": "", "what": "", "message": line} for line in lines[1:])]


def _run(checks: t.Sequence[_Check]) -> list[dict[str, t.Any]]:
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="check") as pool:
        return list(pool.map(lambda pair: _one(*pair), checks))


def _one(subject: str, check: t.Callable[[], str | CloudCheck]) -> dict[str, t.Any]:
    try:
        outcome = check()
    except TgpError as error:
        return {"what": subject, "ok": False, "status": NO, "message": str(error), "warnings": []}
    if isinstance(outcome, str):
        outcome = CloudCheck(outcome)
    status = WARN if outcome.warnings else OK
    return {"what": subject, "ok": True, "status": status, "message": outcome.sentence, "warnings": list(outcome.warnings)}


# ---- with a cluster


def _checks(context: Context) -> list[_Check]:
    classes = list(context.specs.classes.values())
    checks: list[_Check] = [
        ("documents", lambda: _documents(context.specs)),
        (
            "cluster",
            lambda: f"{context.kube.source}, id {context.cluster_id}, version {server_version(context)}",
        ),
        ("rights", lambda: check_rights(context, context.task.params.get("rights_of") or [WHOLE])),
        ("clock", lambda: check_clock(context)),
        ("releases", lambda: _releases(context)),
        ("mesh", lambda: check_mesh(context, classes)),
    ]
    if any(node_class.mesh.backend == "tailscale" for node_class in classes):
        checks.append(("policy", lambda: check_policy(context, classes)))
    checks += [(f"hub of {one.name}", _hub_check(one)) for one in classes if one.mesh.hub_secrets is not None]
    classes = [one for one in classes if not one.mesh.hub_unread]
    with_nodes = [node_class for node_class in classes if makes_nodes(context.specs, node_class)]
    if with_nodes or not service_pools(context.specs):
        checks.append(("Talos secrets", lambda: _talos(context)))
    if with_nodes:
        checks.append(("control plane", lambda: _endpoint(context, with_nodes)))
        checks.append((DEVICE_PLUGIN, lambda: _device_plugin(context)))
    if service_pools(context.specs):
        checks.append(("services", lambda: check_services(context)))
    only_services = {pool.node_class for pool in service_pools(context.specs)} - {node_class.name for node_class in with_nodes}
    checks += [
        (f"template of {node_class.name}", _template_check(context, node_class))
        for node_class in classes
        if node_class.name not in only_services
    ]
    for name in sorted(account_volumes.wanted(context.specs)):
        checks.append((f"volumes of {name}", _volume_check(context, name)))
    checks += [
        (f"image of {node_class.name} at {choice.cloud}", _image_check(context, node_class, choice.cloud, policy))
        for node_class in with_nodes
        if any(pool.node_class == node_class.name and Lane.TALOS in accepted_lanes(pool) for pool in context.specs.pools)
        for choice in node_class.clouds
        if choice.enabled and (policy := policy_of(node_class, choice.cloud, Lane.TALOS)) is not None
    ]
    names = [name for name in _named(context.specs) if not unused(context.task, context.kube, name, context.specs)]
    checks += [(f"cloud {name}", _cloud_check(context, name)) for name in names]
    checks += [(f"cloud {name}", _beside(context.task, name)) for name in _unnamed(context.task, context.specs)]
    return checks if names else [*checks, ("clouds", _no_cloud)]


def _hub_check(node_class: NodeClass) -> t.Callable[[], str]:
    """Whether the hub that a class has in Secrets could be read just now."""

    def check() -> str:
        hub, secrets = node_class.mesh.hub, t.cast(HubSecrets, node_class.mesh.hub_secrets)
        if hub is None:
            raise InvalidInput(secrets.problem)
        names = sorted({f"{ref.namespace}/{ref.name}" for ref in secrets.refs.values()})
        return f"public key and endpoint {hub.endpoint}; read from Secret {', '.join(names)}"

    return check


def _cloud_check(context: Context, name: str) -> t.Callable[[], CloudCheck]:
    return lambda: context.clients.cloud(name).check()


def _volume_check(context: Context, name: str) -> t.Callable[[], str]:
    """Whether the volumes that classes name exist at this provider, together in one region (L-51)."""

    def check() -> str:
        known = context.clients.volumes(name)
        entries = [
            (node_class.name, choice)
            for node_class in context.specs.classes.values()
            for choice in node_class.clouds
            if choice.cloud == name and choice.enabled and choice.volumes
        ]
        wrong = [f"GPUNodeClass {owner}: {why}" for owner, choice in entries if (why := account_volumes.problem(choice, known))]
        if wrong:
            raise InvalidInput("Machines could not mount their volumes:", problems=wrong)
        places = {owner: ", ".join(sorted(account_volumes.regions(choice.volumes, known))) for owner, choice in entries}
        return "; ".join(f"{owner} rents in {where} only" for owner, where in sorted(places.items()))

    return check


def _image_check(context: Context, node_class: NodeClass, cloud: str, policy: ImagePolicy) -> t.Callable[[], CloudCheck]:
    def check() -> CloudCheck:
        sentence, there = image_sentence(context, node_class, cloud, policy)
        return CloudCheck(sentence, () if there else (f"machines of {node_class.name} at {cloud} wait for it.",))

    return check


def _talos(context: Context) -> str:
    facts = cluster_facts(context)
    return f"endpoint {facts.endpoint}, kubelet {facts.kubernetes_version}"


def _endpoint(context: Context, classes: t.Sequence[NodeClass]) -> CloudCheck:
    try:
        url = cluster_facts(context).endpoint
    except TgpError:
        return CloudCheck("not tried", ("Its address is not known before the Talos secrets are right.",))
    return check_endpoint(url, classes)


def _device_plugin(context: Context) -> CloudCheck:
    """Whether nodes of each pool would show GPUs; a machine whose node shows none is billed for its whole registration time. Without
    documents this is asked for a pool of which nothing is known."""
    plugins, nodes = device_plugins(context.kube), _nodes(context)
    pools = [pool for pool in context.specs.pools if pool.service is None]
    resources = context.settings.gpu_resources
    answers = {pool.key: answer(pool, context.specs.classes[pool.node_class], plugins, nodes, resources) for pool in pools}
    if not context.specs.pools:
        answers = {_ANY: answer(Pool("", "", ""), NodeClass("", ()), plugins, nodes, resources)}
    missing = [f"{key}: {verdict.why}" for key, verdict in answers.items() if verdict.word == NONE]
    if missing:
        raise InvalidInput("Nodes would not show their GPUs:", problems=missing)
    sure = sorted({device_answer.why for device_answer in answers.values() if device_answer.word == YES and device_answer.why})
    open_questions = tuple(f"{key}: {device_answer.why}" for key, device_answer in answers.items() if device_answer.word == UNKNOWN)
    sentence = ", ".join(sure) or ("nothing is certain" if open_questions else "no pool needs one")
    if sure and _ANY in answers:
        sentence += "; without documents the taints and labels of pools were not compared"
    return CloudCheck(sentence, open_questions)


def _nodes(context: Context) -> list[Node]:
    return context.once("nodes", lambda: read_nodes(context.kube))


def _releases(context: Context) -> CloudCheck:
    """Whether the release tables know what this cluster runs."""
    return check_releases(context, _nodes(context), server_version(context), lambda version: official_extensions(context, version))


def _documents(specs: Specs) -> str:
    return f"{len(specs.classes)} class(es), {len(specs.pools)} pool(s)"


def _named(specs: Specs) -> list[str]:
    """Clouds that a document may rent from."""
    return sorted({choice.cloud for node_class in specs.classes.values() for choice in node_class.clouds if choice.enabled})


def _unnamed(task: Task, specs: Specs) -> list[str]:
    """Clouds whose key is given by option or environment although no document speaks of them: a wrong key is found here, not later."""
    named = _named(specs)
    return [name for name, entry in ENTRIES.items() if name not in named and entry.facts.rented and entry.is_configured(task)]


def _no_cloud() -> str:
    variables = [entry.variables(entry.key)[0] for entry in ENTRIES.values() if entry.facts.rented]
    raise InvalidInput(
        "No cloud is named by a document and none is configured.", remedy=f"Set one of {', '.join(variables)}, or name a provider."
    )


def _template_check(context: Context, node_class: NodeClass) -> t.Callable[[], CloudCheck]:
    def check() -> CloudCheck:
        faults = template_faults(context, node_class)
        if not faults and makes_nodes(context.specs, node_class):
            cluster_facts(context)  # without them nothing more can be tried
            faults = rehearsal_faults(context, node_class, second_opinion=context.task.params.get("talosctl"))
        if faults:
            raise InvalidInput("A machine with this template would not join:", problems=faults)
        return CloudCheck("renders to a configuration that Talos accepts", template_warnings(context, node_class))

    return check


def _beside(task: Task, name: str) -> t.Callable[[], CloudCheck]:
    """A cloud that no document names: its key has to work, but nothing is going to be launched there, so what else it lacks is a warning."""
    alone = _cloud_alone(task, name, None)

    def check() -> CloudCheck:
        try:
            return alone()
        except InvalidCredential:
            raise
        except InvalidInput as error:
            return CloudCheck(f"{name}: no document names it.", (str(error),))

    return check


# ---- without one


def _without_cluster(task: Task, problem: TgpError) -> list[_Check]:
    """What can be tried although the cluster cannot; documents that are wrong end it at once."""
    try:
        specs = load(task, None)
    except TgpError:
        raise problem from None
    if not specs.pools:
        raise problem

    def cluster() -> str:
        unread = sorted({f"{ref.namespace}/{ref.name}" for ref in hub_secrets(specs.classes.values())})
        hubs = f" Nor were the WireGuard hubs in Secret {', '.join(unread)} read." if unread else ""
        raise InvalidInput(f"{problem} Rights, clock, Talos secrets and templates were not tried.{hubs}")

    checks: list[_Check] = [("documents", lambda: _documents(specs)), ("cluster", cluster)]
    if any(node_class.mesh.backend == "tailscale" for node_class in specs.classes.values()):
        checks.append(("mesh", lambda: _mesh_alone(task, specs)))
    for name in _named(specs):
        choices = [
            choice
            for node_class in specs.classes.values()
            for choice in node_class.clouds
            if choice.cloud == name and choice.enabled
        ]
        if not all(choice.implicit for choice in choices) or ENTRIES[name].is_configured(task):
            checks.append((f"cloud {name}", _cloud_alone(task, name, choices[0])))
    return checks + [(f"cloud {name}", _beside(task, name)) for name in _unnamed(task, specs)]


def _mesh_alone(task: Task, specs: Specs) -> str:
    mesh = connect_mesh(task)
    try:
        return mesh.check(sorted({tag for node_class in specs.classes.values() for tag in node_class.mesh.tags}))
    finally:
        mesh.close()


def _cloud_alone(task: Task, name: str, choice: CloudChoice | None) -> t.Callable[[], CloudCheck]:
    def check() -> CloudCheck:
        cloud = connect_cloud(name, task, choice=choice)
        try:
            return cloud.check()
        finally:
            cloud.close()

    return check
