# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""in_process, for the module that ends a rented machine when it is interrupted: the main process waits for its worker, as with fleet_loop."""

from __future__ import annotations

from .fleet_loop import ActionModule as WaitedFor


class ActionModule(WaitedFor):
    """Nothing differs in the worker."""
