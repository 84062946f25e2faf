# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types that every part of the model uses."""

from __future__ import annotations

import typing as t

Labels = t.Mapping[str, str]
