# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a saved plan: JSON for programs and people, readable by its owner alone, written atomically."""

from __future__ import annotations

import json
import os

from ..core.errors import InvalidInput
from ..core.files import replace
from ..core.task import Task
from ..planner.plans.record import from_record, to_record
from ..planner.plans.saved_plan import SavedPlan

_LARGEST = 64 * 1024 * 1024  # bytes; a plan of a thousand launches has some twenty million


def write_plan(task: Task, plan: SavedPlan) -> bool:
    """Write ``plan`` to the file of option ``save_to``, outside check mode. False when it says what the file says already, but for the
    time and the run: the file is then as good as new, and new all the same, because its age counts."""
    path = os.path.abspath(task.params["save_to"])
    before = _known(path)
    record = to_record(plan)
    changed = before is None or _content(before) != _content(record)
    if not task.check_mode:
        replace(path, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
        task.progress(f"  saved to {path}; apply it with apply.yml")
    return changed


def read_plan(path: str) -> SavedPlan:
    """The plan in a file. InvalidInput naming the file, and the field where it is odd."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST + 1)  # the size that a device or a pipe tells of says nothing
        if len(text) > _LARGEST:
            raise InvalidInput(f"{path} is too large to be a plan.", remedy="Name the file that plan.yml wrote.")
        content = json.loads(text)
    except OSError as error:
        raise InvalidInput(
            f"The plan {path} cannot be read: {error.strerror}.", remedy="Name the file that plan.yml wrote."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a plan: {error}.", remedy="Make the plan again with plan.yml.") from error
    try:
        return from_record(content)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}", remedy=error.remedy) from error


def _known(path: str) -> dict[str, object] | None:
    try:
        return to_record(read_plan(path))
    except InvalidInput:
        return None


def _content(record: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in record.items() if key not in ("made_at", "run_id", "digest")}
