# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""in_process, for a module with which plays begin.

Because this file has the module's name the play's main process loads it, before it starts the first worker. Later workers are forks of
that process and have all that it imported: about a second less in each play of several tasks. A route in meta/runtime.yml would be
followed in the worker only, and a redirected action would no longer be in its group of module_defaults. Modules that have a route are
imported by the worker that runs them, each with what it needs.
"""

from __future__ import annotations

from .in_process import ActionModule, preload

__all__ = ["ActionModule"]

preload("fleet_plan", "fleet_launch")  # the steps after the plan are all in the file of fleet_launch
