# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the Talos template of a class: inline, or a key of a Kubernetes Secret."""

from __future__ import annotations

from ..kube.secrets import read_secret
from ..model import NodeClass
from .context import Context


def template_of(context: Context, node_class: NodeClass) -> str | None:
    """The template's text, None when the class has none."""
    if node_class.template is not None or node_class.template_ref is None:
        return node_class.template
    ref = node_class.template_ref
    return context.once(("template", ref), lambda: read_secret(context.kube, ref.namespace, ref.name, ref.key))
