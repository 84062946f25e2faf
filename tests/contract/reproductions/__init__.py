# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects of version 0.1, each as a story that fails on it. ``make red ITEM=n`` plays ``test_<n>_*.py`` against the plugins of 0.1.

A file here uses nothing but the modules and the sandbox, and imports nothing of the collection that 0.1 does not have: it has to fail on the
defect, not on an import, and with words that ``tests/red.py`` knows. A test marked ``control`` passes on 0.1 too: it shows what the defect
spares, or what its fix must not break.
"""
