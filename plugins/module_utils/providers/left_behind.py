# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines that exist when a call of an instance module fails: the failure names each with its id, its price and what to do."""

from __future__ import annotations

import contextlib
import typing as t

from ..core import errors
from ..model import Instance, InstanceState
from ..units.money import print_money
from .results import instance_result


def told(one: Instance) -> str:
    """A machine in a sentence: where it is, what it is, and what it costs."""
    price = "price unknown" if one.price_hour is None else f"{print_money(one.price_hour)} $/h"
    if one.state is InstanceState.STOPPED and one.storage_price_hour:
        price += f" while it runs, {print_money(one.storage_price_hour)} $/h for its disk while it is stopped"
    return f"{one.cloud} {one.id} ({', '.join(filter(None, (one.instance_type, price)))})"


def with_result(error: errors.TgpError, machines: t.Sequence[Instance]) -> errors.TgpError:
    """The failure also returns machines as last seen."""
    shown = [instance_result(one) for one in machines]
    error.result = {"instance": shown[0] if shown else None, "instances": shown}
    return error


class LeftBehind:
    """What this call has made, or was to end, and what still exists as far as it knows."""

    def __init__(self) -> None:
        self._machines: dict[str, Instance] = {}

    def note(self, one: Instance) -> None:
        """It exists; as last seen. One that is gone is dropped."""
        if one.gone:
            self.drop(one.id)
        else:
            self._machines[one.id] = one

    def drop(self, identity: str) -> None:
        self._machines.pop(identity, None)

    @contextlib.contextmanager
    def named(self) -> t.Iterator[None]:
        """A failure inside names them."""
        try:
            yield
        except errors.TgpError as error:
            if not self._machines:
                raise
            machines = list(self._machines.values())
            listed = ", ".join(told(one) for one in machines)
            verb = "exists and is" if len(machines) == 1 else "exist and are"
            thing = "it" if len(machines) == 1 else "them"
            error.message = f"{error.message} {listed} {verb} billed."
            remedy = f"Run this with state: absent to end {thing}, or terminate {thing} in the console of {machines[0].cloud}."
            error.remedy = f"{error.remedy} {remedy}".strip()
            raise with_result(error, machines) from error.__cause__
