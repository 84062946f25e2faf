# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""in_process, for a module with which plays begin.

Because this file has the module's name the play's main process loads it, and with it everything that in_process imports, before it starts
the first worker. Later workers are forks of that process and have it all: about a second less in each play of several tasks. A route in
meta/runtime.yml would be followed in the worker only, and a redirected action would no longer be in its group of module_defaults.
"""

from __future__ import annotations

from .in_process import ActionModule

__all__ = ["ActionModule"]
