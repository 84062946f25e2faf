# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox in process, as the tests of the modules use it."""

from __future__ import annotations

from ..act.conftest import build, rig

__all__ = ["build", "rig"]
