# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules for one machine of a name (lambda_instance and its siblings), asked for names that the world has.

For the name of a machine of somebody else a module runs in check mode: it returns no such machine, and reports it (L-1a). For the name of a
machine of ours it runs for real: it returns that machine, makes none and ends none. Paperspace carries no stamp, a name is all there is: a
module is asked for names of ours only.
"""

from __future__ import annotations

import typing as t
from datetime import timedelta

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.modules import lambda_instance, paperspace_machine, runpod_pod, vast_instance

from sandbox.world import Machine

from ..contract.act.rig import URLS

if t.TYPE_CHECKING:
    from .stage import Stage

MODULES: dict[str, t.Any] = {
    "lambda": lambda_instance,
    "paperspace": paperspace_machine,
    "runpod": runpod_pod,
    "vast": vast_instance,
}
_LISTED = timedelta(seconds=180)  # every list shows a machine of that age


def ask(stage: Stage, rest: str) -> None:
    """A module is asked for the name of a machine of somebody else; ``ours``: of one of ours."""
    place, *whose = rest.split()
    if whose == ["ours"]:
        found = [one for one in stage.sight.living() if one.cloud in MODULES and _can_be_read(stage, one) and _is_alone(stage, one)]
    else:
        found = [
            one
            for one in stage.sight.foreign.values()
            if one.ended is None and one.cloud in MODULES and one.cloud != "paperspace" and not stage.sight.moved.is_moved(one.id)
        ]  # whoever took a machine over gave it a name that means nothing to us, and asks for it by that
    if found:
        one = found[int(place) % len(found)]
        (_for_ours if whose == ["ours"] else _for_theirs)(stage, one)


def _for_theirs(stage: Stage, one: Machine) -> None:
    readable = _can_be_read(stage, one)  # a fault that the call meets may be used up after it
    said, told = _call(stage, one, check=True)
    returned = _returned(said)
    if returned in stage.sight.foreign:
        stage.broken.append(f"I-20: a module returns {one.cloud} {returned} ({one.name}), which belongs to somebody else")
    elif one.id in told or returned:
        _count(stage)
    if one.id not in told and readable:
        stage.broken.append(f"I-20: a module does not report {one.cloud} {one.id} ({one.name}), which belongs to somebody else")


def _for_ours(stage: Stage, one: Machine) -> None:
    before = {key: machine.ended for key, machine in stage.sight.by_id().items()}
    said, told = _call(stage, one, check=True)
    if _returned(said) == one.id:
        said, told = _call(stage, one, check=False)
    made = sorted(set(stage.sight.by_id()) - set(before))
    ended = [key for key, when in before.items() if when is None and stage.sight.by_id()[key].ended is not None]
    if _returned(said) != one.id or said["changed"] or made or ended:
        end = f"; made {made}, ended {ended}; it says {told}" if made or ended or told else ""
        stage.broken.append(f"I-20: a module does not return {one.cloud} {one.id} ({one.name}), which is ours, as it is{end}")
    else:
        _count(stage)


def _is_alone(stage: Stage, one: Machine) -> bool:
    """Whether no other machine of ours has its name: a module ends duplicates."""
    return [other.id for other in stage.sight.living() if other.name == one.name] == [one.id]


def _can_be_read(stage: Stage, one: Machine) -> bool:
    """Whether it is well, its list shows it, and nothing keeps the module from reading that."""
    key = f"{one.cloud.upper()}_API_KEY"
    hampered = any(fault.times is None or fault.hits < fault.times for fault in stage.faults.all())
    known = stage.world.secrets[key] == stage.adverse.keys[key]
    alive = one.state in ("booting", "active") and "struck" not in one.details
    return known and alive and not hampered and stage.clock.now() - one.created > _LISTED


def _call(stage: Stage, one: Machine, *, check: bool) -> tuple[dict[str, t.Any], str]:
    """The result of the module for the machine's name and kind, and its warnings or error."""
    module, told = MODULES[one.cloud], list[str]()
    account = {f"{one.cloud}_api_url": URLS[one.cloud], f"{one.cloud}_api_key": stage.adverse.keys[f"{one.cloud.upper()}_API_KEY"]}
    spec = {key: value for key, value in module.SPEC.items() if key != "supports_check_mode"}
    read = ArgumentSpecValidator(**spec).validate({"name": one.name, "wait": False, **_kind(one), **account})
    assert not read.error_messages, read.error_messages
    params = {**read.validated_parameters, "state_dir": str(stage.folder / "state-modules")}
    task = Task(params, check_mode=check, warn=told.append, clock=stage.clock, transport=stage._transport)
    try:
        return module.run(task), "\n".join(told)
    except TgpError as error:
        return {"changed": False, "instance": None}, "\n".join([*told, str(error)])


def _kind(one: Machine) -> dict[str, t.Any]:
    """Options that the machine fulfils, so that it is the wanted one if it is ours."""
    if one.cloud == "lambda":
        return {"instance_type": one.offer.type}
    if one.cloud == "paperspace":
        return {"machine_type": one.offer.type}
    image = {"image": "registry.example/llm:1", "gpu_count": one.offer.gpu_count}
    if one.cloud == "runpod":
        return {"gpu_type": one.offer.type, **image}
    return {"gpu_type": one.offer.details["row"]["gpu_name"], "spot": one.details["bid"] is not None, **image}


def _returned(said: dict[str, t.Any]) -> str:
    return str((said.get("instance") or {}).get("id") or "")


def _count(stage: Stage) -> None:
    stage.adverse.counts["single module"] = stage.adverse.counts.get("single module", 0) + 1
