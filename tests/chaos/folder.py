# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records in files (``claim_store: directory``): the truth about them, and a door in front of the store, so that each access counts as a
call of the run, can fail, and can be the run's last one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import typing as t
from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Conflict
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim
from ansible_collections.tgp.gpu.plugins.module_utils.store import directory, open_store, records

from .sight import Call, Json

if t.TYPE_CHECKING:
    from sandbox.faults import Fault

    from .stage import Stage

SERVICE = "directory"
_T = t.TypeVar("_T")


class Files:
    """The records below ``root``, read past the code under test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._parsed: dict[str, tuple[tuple[int, int, int], Json]] = {}

    def claims(self) -> dict[str, Json]:
        """Claims by name; a damaged one says nothing."""
        return {one["name"]: one for one in self._all("claims")}

    def ledger(self) -> list[Json]:
        return self._all("ledger")

    def path(self, name: str) -> Path:
        return self.root / "claims" / f"{name}.json"

    def damage(self, name: str) -> str:
        """Half of the claim's file is lost; what it was."""
        text = self.path(name).read_text(encoding="utf-8")
        self.path(name).write_text(text[: len(text) // 2], encoding="utf-8")
        return text

    def remove(self, name: str) -> bool:
        """A person removes the claim; whether it was there."""
        there = self.path(name).exists()
        self.path(name).unlink(missing_ok=True)
        return there

    def copy_to(self, other: Path) -> None:
        """A backup of all records, put back elsewhere."""
        if self.root.exists():
            shutil.copytree(self.root, other)

    def _all(self, part: str) -> list[Json]:
        folder, found = self.root / part, list[Json]()
        for entry in sorted(os.scandir(folder), key=lambda one: one.name) if folder.is_dir() else ():
            if not entry.name.endswith(".json") or entry.name.startswith("."):
                continue
            facts = entry.stat()
            version = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            known = self._parsed.get(entry.path)
            if known is None or known[0] != version:
                try:
                    known = self._parsed[entry.path] = version, json.loads(Path(entry.path).read_text(encoding="utf-8"))
                except ValueError:
                    continue
            found.append(known[1])
        return found


class WatchedStore(directory.DirectoryStore):
    """The store as runs of a stage see it. A fault with a status is an error of the file system (409: somebody else changed the file)."""

    def __init__(self, stage: Stage, folder: str) -> None:
        super().__init__(folder)
        self._stage = stage

    def claim_records(self) -> records.ClaimRecords:
        return self._pass("GET", "/claims", "", super().claim_records)

    def _swap(self, claim: Claim) -> Claim:
        body = json.dumps({"data": {"claim.json": records.encode_claim(claim)}})
        return self._pass("PUT", f"/claims/{claim.name}", body, lambda: super(WatchedStore, self)._swap(claim))

    def _drop(self, claim: Claim) -> None:
        return self._pass("DELETE", f"/claims/{claim.name}", "", lambda: super(WatchedStore, self)._drop(claim))

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        return self._pass(
            "PUT", f"/state/{name}", records.encode(state), lambda: super(WatchedStore, self).write_state(name, state)
        )

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        return self._pass(
            "PUT", f"/ledger/{records.ledger_key(line)}", records.encode(line), lambda: super(WatchedStore, self).ledger(line)
        )

    def ledger_records(self) -> records.Records:
        return self._pass("GET", "/ledger", "", super().ledger_records)

    def _pass(self, method: str, path: str, body: str, act: t.Callable[[], _T]) -> _T:
        """``act`` as a call that leaves the run."""
        stage, process = self._stage, self._stage.loom.current.process
        run = stage.run_of.get(process)
        if run is None or process is None:
            return act()
        order = stage.orders[run.name]
        if order.host == "t" and not stage.is_twin:
            stage = t.cast("Stage", stage.twins[-1])
        call = Call(run, "second cluster" if stage.is_twin else SERVICE, method, path, body, method != "GET")
        stage.loom.sleep(stage.loom.dice.uniform(0.0001, 0.002))
        due = stage.begin(call, process)
        fault = stage.faults.strike(SERVICE, method, path)
        if call.writes:
            stage.world.writes.append((stage.clock.now(), SERVICE, f"{method} {path}"))
        try:
            if fault is not None and fault.kind in ("delay", "hang"):
                stage.loom.sleep(fault.seconds)
            elif fault is not None and fault.kind != "lost_after":
                raise _error(fault, path)
            with stage.loom.shielded():
                found = act()
            call.status = 200
            if fault is not None and fault.kind == "lost_after":
                raise _error(fault, path)
        finally:
            stage.end(call)
        if due:
            stage.die(process)
        return found


def _error(fault: Fault, path: str) -> Exception:
    if fault.status == 409:
        return Conflict(f"{path} was changed by another writer.", service="claims", status=409)
    number = errno.EPERM if fault.status == 422 else errno.EIO
    return directory._unusable(path, OSError(number, os.strerror(number)))


def install(stage: Stage) -> t.Callable[[], None]:
    """From now on runs of this stage meet the door; what is returned takes it away."""
    plain = open_store.DirectoryStore
    setattr(open_store, "DirectoryStore", lambda folder, **_mover: WatchedStore(stage, folder))  # noqa: B010 - a class becomes a function
    return lambda: setattr(open_store, "DirectoryStore", plain)
