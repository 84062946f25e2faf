# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_diagnose: why pods do not get GPUs, from one look at cluster and nodes."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ..core.errors import InvalidInput, TgpError
from ..core.events import render
from ..core.task import Task
from ..diagnosis.evidence.bundle import write_bundle
from ..diagnosis.evidence.gpus import GpuCollector, Subject
from ..diagnosis.evidence.ssh_node import SshNodes
from ..diagnosis.evidence.talos_node import TalosNodes, reader_of
from ..diagnosis.gpus.facts import ClusterGpus, GpuCheck, GpuTestRun
from ..diagnosis.gpus.report import diagnose_gpus, problems, rows
from ..observe.context import Context, open_context
from .gpu_test import node_to_test, run_tests

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_COLUMNS = {"mark": "", "subject": "subject", "check": "check", "seen": "seen, and what to do"}


def diagnose_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_diagnose. InvalidInput names everything that is wrong with GPUs, as fleet_validate does for the set-up."""
    subject = subject_of(task)
    context = open_context(task, documents_required=False, read_only=True)
    try:
        (talos, no_talos), (ssh, no_ssh) = _talos(task), _ssh(task)
        collector = GpuCollector(context, subject, talos, ssh, (no_talos, no_ssh), deep=bool(task.params.get("deep")))
        cluster = collector.collect()
        _refuse_unknown(context, subject, cluster)
        if task.params.get("gpu_test"):
            cluster = dataclasses.replace(cluster, tests=_tests(context, cluster))
        return _result(context, cluster, diagnose_gpus(cluster))
    finally:
        context.close()


def subject_of(task: Task) -> Subject:
    """What the options name; at most one thing."""
    given = {name: str(task.params.get(name) or "") for name in ("node", "pool", "pod")}
    named = [task.called(name) for name, value in given.items() if value]
    if len(named) > 1:
        raise InvalidInput(f"{' and '.join(named)} are given together.", remedy="Name one thing, or none for everything.")
    pod = None
    if given["pod"]:
        namespace, slash, name = given["pod"].partition("/")
        if not (slash and namespace and name) or "/" in name:
            raise InvalidInput(f"{task.called('pod')}: {given['pod']!r} is not namespace/name.")
        pod = (namespace, name)
    return Subject(given["node"], given["pool"], pod)


def _tests(context: Context, cluster: ClusterGpus) -> tuple[GpuTestRun, ...] | None:
    """The test pods, beside the device plugin; None in check mode. They are gone afterwards, whatever happens."""
    task, seconds = context.task, context.task.params["gpu_test_timeout"]
    if not 30 <= seconds <= 3600:
        raise InvalidInput(f"{task.called('gpu_test_timeout')} is {seconds}; it is 30 to 3600 seconds.")
    if task.check_mode:
        context.warn("Check mode makes no test pods.")
        return None
    node = node_to_test(cluster)
    if node is None:
        return (GpuTestRun("no pod", "CDI", False, "no node that is Ready shows GPUs"),)
    namespace = next((daemon.namespace for daemon in cluster.daemons or () if daemon.kind == "plugin"), "default")
    return run_tests(context.kube, context.clock, namespace, node, context.run_id, seconds, smi=bool(task.params.get("deep")))


def _talos(task: Task) -> tuple[TalosNodes | None, str]:
    """How Talos nodes are asked, or why they are not. A talosconfig that cannot be used stops nothing else."""
    if not task.params.get("talosconfig"):
        name = task.called("talosconfig")
        return None, f"no talosconfig is given ({name}, or the environment variable TALOSCONFIG): its Talos API was not asked"
    try:
        return TalosNodes(reader_of(task)), ""
    except TgpError as error:
        return None, f"its Talos API was not asked: {error}"


def _ssh(task: Task) -> tuple[SshNodes | None, str]:
    """How other nodes are asked, or why they are not."""
    user, port = str(task.params.get("ssh_user") or ""), int(task.params.get("ssh_port") or 22)
    files = {name: str(task.params.get(name) or "") for name in ("ssh_private_key", "ssh_config")}
    if not user:
        for name, path in files.items():
            if path:
                raise InvalidInput(f"{task.called(name)} is given without {task.called('ssh_user')}.")
        return None, f"it does not run Talos, and no {task.called('ssh_user')} is given: it was not asked by SSH"
    if not _USER.fullmatch(user):
        raise InvalidInput(f"{task.called('ssh_user')}: {user!r} is not the name of a user.")
    if not 1 <= port <= 65535:
        raise InvalidInput(f"{task.called('ssh_port')} is {port}; it is 1 to 65535.")
    for name, path in files.items():
        if path and not os.access(os.path.expanduser(path), os.R_OK):
            raise InvalidInput(f"{task.called(name)}: {path} cannot be read.")
    return SshNodes(user, key=files["ssh_private_key"], port=port, config=files["ssh_config"]), ""


def _refuse_unknown(context: Context, subject: Subject, cluster: ClusterGpus) -> None:
    """A name that nothing has may be a typing error."""
    task, unread = context.task, dict(cluster.unread)
    if subject.node and not cluster.nodes and "nodes" not in unread:
        raise InvalidInput(f"{task.called('node')}: there is no Node {subject.node}.")
    if subject.pod is not None and cluster.pending == ():
        raise InvalidInput(f"{task.called('pod')}: there is no pod {'/'.join(subject.pod)} that asks for GPUs.")
    if subject.pool and not cluster.nodes and not {"nodes", "claims"} & set(unread):
        known = sorted(pool.key for pool in context.specs.pools)
        if not any(subject.pool in (key, key.partition("/")[2]) for key in known):
            raise InvalidInput(
                f"{task.called('pool')}: no node is of a pool {subject.pool}, and no document describes one.",
                remedy=f"Known are: {', '.join(known)}." if known else None,
            )


def _result(context: Context, cluster: ClusterGpus, checks: t.Sequence[GpuCheck]) -> dict[str, t.Any]:
    task, table = context.task, render(rows(checks), _COLUMNS)
    for line in table:
        task.progress(line)
    result: dict[str, t.Any] = {"changed": False, "checks": [dataclasses.asdict(check) for check in checks]}
    if task.params.get("bundle") and not task.check_mode:
        write_bundle(task.params["bundle"], cluster, checks, table, context.clock.now())
        task.progress(f"  The support bundle is {task.params['bundle']}.")
        result["bundle"] = task.params["bundle"]
    wrong = problems(checks)
    if wrong:
        raise InvalidInput("Pods do not get GPUs as they should:", problems=wrong, result=result)
    return result
