# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All machines of the world: each gets the life of what it is."""

from __future__ import annotations

from .clock import ClockClosed
from .container import CONTAINER, Container
from .life import Over, Surroundings
from .story import Story
from .world import Machine


class Machines(Surroundings):
    """Gives every machine of the world its life."""

    def boot(self, machine: Machine) -> None:
        """The whole life of one power-on; runs in the machine's own thread."""
        try:
            (Container if machine.details.get("system") == CONTAINER else Story)(self, machine).tell()
        except (Over, ClockClosed):
            return
