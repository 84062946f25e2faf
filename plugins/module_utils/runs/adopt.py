# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes over the machines of a lost record store: a person says which generation this store goes on with (L-1a)."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ..core.clock import to_text
from ..core.errors import InvalidInput
from ..core.events import render
from ..core.task import Task
from ..model import Observation
from ..observe.context import Context, locked_run
from ..observe.gather import gather
from ..planner.garbage_collection.ownership import Store, claimed, ids_of, owner_of
from ..providers.registry import CAPABILITIES
from ..store.records import encode

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COLUMNS = {
    "generation": "generation",
    "name": "machine",
    "cloud": "cloud",
    "id": "id",
    "price_hour": "$/h",
    "mesh_online": "in mesh",
}


@dataclasses.dataclass(frozen=True)
class _ForeignMachines:
    """``machines`` carry another generation than this store's; ``unread`` clouds could not be listed."""

    machines: list[dict[str, t.Any]]
    unread: list[str]


def adopt_generation(task: Task) -> dict[str, t.Any]:
    """The result of fleet_adopt: shows machines of other generations; with ``generation`` this store goes on with that one."""
    wanted = task.params["generation"]
    if wanted is not None and not _UUID.fullmatch(wanted):
        raise InvalidInput(
            f"{task.called('generation')} must be a UUID in lower case, got {wanted!r}.", remedy="Run without it: they are listed."
        )
    return locked_run(task, lambda context, writes: _adopt(context, wanted, writes=writes), apply=wanted is not None)


def _adopt(context: Context, wanted: str | None, *, writes: bool) -> dict[str, t.Any]:
    before = context.records.generations()
    foreign = _look(context, gather(context, pods=False))
    after = before
    if wanted is not None and wanted not in before:
        if not any(machine["generation"] == wanted for machine in foreign.machines):
            blind = f" {', '.join(foreign.unread)} could not be listed." if foreign.unread else ""
            raise InvalidInput(
                f"No machine carries generation {wanted}.{blind}",
                remedy=f"Run without {context.task.called('generation')}: all are listed.",
            )
        after = (wanted, *before)
    taken = [machine["name"] for machine in foreign.machines if machine["generation"] in after]
    _say(context, foreign, before, after)
    if writes and after != before:
        record = {"generation": after[0], "drawn": to_text(context.clock.now()), "earlier": list(after[1:])}
        context.store.write_state("generation", record)
    result: dict[str, t.Any] = {
        "changed": after != before,
        "generation": after[0] if after else "",
        "earlier": list(after[1:]),
        "machines": foreign.machines,
        "adopted": taken,
    }
    if context.task.diff_mode:
        texts = [encode({"generations": list(generations)}) + "\n" for generations in (before, after)]
        result["diff"] = {"before": texts[0], "after": texts[1]}
    return result


def _look(context: Context, seen: Observation) -> _ForeignMachines:
    store = Store(seen.cluster_id, seen.generations, claimed(seen.claims or ()), ids_of(seen.released))
    online = {device.hostname for device in seen.devices or () if device.online}
    machines = []
    for cloud, view in sorted(seen.clouds.items()):
        for instance in view.instances or ():
            owner = owner_of(instance, CAPABILITIES.get(cloud), store)
            if owner.generation and not instance.gone:
                price = "" if instance.price_hour is None else str(instance.price_hour)
                mesh = None if seen.devices is None else instance.name in online
                machines.append(
                    {
                        "generation": owner.generation,
                        "name": instance.name,
                        "cloud": cloud,
                        "id": instance.id,
                        "price_hour": price,
                        "mesh_online": mesh,
                    }
                )
    return _ForeignMachines(machines, sorted(cloud for cloud, view in seen.clouds.items() if view.instances is None))


def _say(context: Context, foreign: _ForeignMachines, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    say = context.task.progress
    words = {True: "online", False: "offline", None: "unknown"}
    for line in render(
        [{**machine, "mesh_online": words[machine["mesh_online"]]} for machine in foreign.machines], _COLUMNS, right=("price_hour",)
    ):
        say(line)
    say(f"  this store: cluster {context.cluster_id}, generation {before[0] if before else 'not drawn yet'}")
    for cloud in foreign.unread:
        context.warn(f"The machines of {cloud} could not be listed; they may carry other generations.")
    if after == before:
        say(
            "  Nothing is changed."
            if not foreign.machines
            else f"  Nothing is changed. To take machines over, give their {context.task.called('generation')}."
        )
        return
    say(
        f"  This store goes on with generation {after[0]}. The next reap.yml adopts its machines that show signs of life, and terminates "
        "those that show none for ten minutes in two runs. Machines keep their stamps."
    )
    if any(machine["mesh_online"] for machine in foreign.machines if machine["generation"] in after):
        context.warn(
            "Some of these machines are online in the mesh. If another cluster with this id still runs, both would manage them: stop its "
            "controller first, or set cluster_id there."
        )
