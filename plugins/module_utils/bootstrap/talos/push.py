# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hands configurations to machines that wait for one in maintenance mode: what ``talos_push`` and ``talos_machine_info`` do."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import typing as t

from ...core.errors import InvalidInput, LostAnswer, TgpError
from ...core.task import Task
from ...talos.api.grpc import CertificateWanted, GrpcError
from ...talos.api.machine import Applied, MachineApi, MaintenanceState, Trust
from ...talos.api.peer import networks, pin
from .configurations import GivenConfig, given_config

_AT_ONCE = 16
_PAUSE = 5.0  # seconds between two looks at a machine that is not up yet
_LOOKS_AFTER = 3  # after an answer was lost

Node = t.Mapping[str, t.Any]


def look(task: Task) -> dict[str, t.Any]:
    """What each machine of ``nodes`` is doing. Never fails for a machine: what is wrong with it is its ``problem``."""
    problems = _number_problems(task)
    if problems:
        raise InvalidInput("No machine was asked.", problems=problems)
    seen = _side_by_side(lambda node: _wait(task, node, 0)[1], task.params["nodes"])
    return {
        "changed": False,
        "nodes": [_facts(node, sight) for node, sight in zip(task.params["nodes"], seen, strict=True)],
    }


def push(task: Task) -> dict[str, t.Any]:
    """Hand each machine of ``nodes`` its configuration. All are judged before the first is touched; one that fails stops no other."""
    nodes = task.params["nodes"]
    trust, configs = _prepared(task, nodes)
    work = [(node, config, trust_of) for node, config, trust_of in zip(nodes, configs, trust, strict=True)]
    results = _side_by_side(lambda item: _push_one(task, *item), work)
    for result in results:
        for warning in result["warnings"]:
            task.warn(f"{result['name']}: {warning}")
    changed = any(result["applied"] or result.get("would_apply") for result in results)
    outcome: dict[str, t.Any] = {"changed": changed, "nodes": results}
    if task.diff_mode:
        outcome["diff"] = [_diff(result) for result in results if result["applied"] or result.get("would_apply")]
    failed = [result for result in results if result["problem"]]
    if failed:
        raise _Failed(
            f"{len(failed)} of {len(results)} machines did not take a configuration.",
            [entry["problem"] for entry in failed],
            outcome,
        )
    return outcome


class _Failed(TgpError):
    """Some machines failed; the result tells of all."""

    kind = "not_pushed"

    def __init__(self, message: str, problems: t.Sequence[str], result: dict[str, t.Any]) -> None:
        super().__init__("\n".join([message, *(f"  - {problem}" for problem in problems)]), problems=list(problems))
        self.result = result


def _prepared(task: Task, nodes: t.Sequence[Node]) -> tuple[list[Trust], list[GivenConfig]]:
    """Trust and checked configuration of every node; InvalidInput with the faults of all of them."""
    allowed = networks(task.params["trusted_networks"])
    problems = _number_problems(task)
    trust, configs = [], []
    names = [node["name"] for node in nodes]
    problems += [f"{name} is listed twice." for name in sorted({name for name in names if names.count(name) > 1})]
    for node in nodes:
        try:
            if node.get("fingerprint"):
                pin(node["fingerprint"])
            trust.append(Trust(allowed, (node.get("fingerprint") or "").strip()))
            configs.append(given_config(node, node["name"], task.params.get("talos_version") or ""))
        except InvalidInput as error:
            problems += [f"{node['name']}: {problem}" for problem in error.problems or (str(error),)]
    if problems:
        raise InvalidInput("Nothing was sent to any machine.", problems=problems)
    return trust, configs


def _number_problems(task: Task) -> list[str]:
    params = task.params
    problems = [f"{node['host']}: port {node['port']} is not a port." for node in params["nodes"] if not 0 < node["port"] < 65536]
    if not 0 < params["call_timeout"] <= 600:
        problems.append("call_timeout must be more than 0 and at most 600 seconds.")
    if params.get("wait") is not None and params["wait"] < 0:
        problems.append("wait cannot be negative.")
    return problems


def _push_one(task: Task, node: Node, config: GivenConfig, trust: Trust) -> dict[str, t.Any]:
    api, sight = _wait(task, node, float(task.params["wait"]))
    result = {**_facts(node, sight), "applied": False, "taken_as": "", "details": "", "warnings": list(config.warnings)}
    try:
        if sight.state == "maintenance":
            _push_to(task, api, node, config, trust, sight, result)
        elif sight.state != "configured":
            result["problem"] = f"{node['name']}: {sight.problem or 'it is in no known state.'}"
    except TgpError as error:
        result["problem"] = f"{node['name']}: {error}"
    return result


def _push_to(
    task: Task, api: MachineApi, node: Node, config: GivenConfig, trust: Trust, sight: MaintenanceState, result: dict[str, t.Any]
) -> None:
    faults = config.checked(sight.mode, sight.version)
    if faults:
        raise InvalidInput(
            f"It runs Talos {sight.version} in {sight.mode} mode and would not take the configuration.", problems=faults
        )
    if task.check_mode:
        api.trusted(trust)
        result["would_apply"] = True
        return
    try:
        applied = api.apply(config.text.encode(), trust)
    except CertificateWanted:
        result["state"] = "configured"  # another client was faster
        return
    except GrpcError as error:
        if error.code in ("invalid_argument", "unknown"):
            raise InvalidInput(f"Talos refused the configuration: {error.details.get('said') or error.code}") from error
        raise
    except LostAnswer as error:
        applied = _after_lost_answer(task, api, error)
    result.update(applied=True, taken_as=applied.mode, details=applied.details)
    result["warnings"] += [warning for warning in applied.warnings if warning not in result["warnings"]]
    task.progress(f"{node['name']}: configuration taken ({applied.mode or 'its answer was lost'})")


def _after_lost_answer(task: Task, api: MachineApi, lost: LostAnswer) -> Applied:
    """A machine that asks for certificates now has taken it. It is not sent a second time here: it may be installing."""
    for _look in range(_LOOKS_AFTER):
        task.clock.sleep(_PAUSE)
        if api.look().state == "configured":
            return Applied("", "", ())
    raise LostAnswer(
        f"{lost.message} Whether it took the configuration is unknown.",
        remedy="Look again in a minute (tgp.gpu.talos_machine_info): in state maintenance it did not, and the task may be repeated.",
        service="talos",
    )


def _wait(task: Task, node: Node, seconds: float) -> tuple[MachineApi, MaintenanceState]:
    """Look until the machine waits for a configuration or has one, for ``seconds`` at most."""
    api = MachineApi(node["host"], node["port"], seconds=float(task.params["call_timeout"]))
    until = task.clock.now().timestamp() + seconds
    while True:
        sight = api.look()
        if sight.state in ("maintenance", "configured") or task.clock.now().timestamp() + _PAUSE > until:
            return api, sight
        task.clock.sleep(_PAUSE)


def _facts(node: Node, sight: MaintenanceState) -> dict[str, t.Any]:
    return {"name": node.get("name") or node["host"], "host": node["host"], **dataclasses.asdict(sight)}


def _diff(node: Node) -> dict[str, str]:
    after = "takes the configuration" if node.get("would_apply") else "has taken the configuration"
    return {
        "before_header": node["name"],
        "after_header": node["name"],
        "before": "waits for a configuration\n",
        "after": f"{after}\n",
    }


def _side_by_side(work: t.Callable[[t.Any], t.Any], items: t.Sequence[t.Any]) -> list[t.Any]:
    if not items:
        return []
    with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(work, items))
