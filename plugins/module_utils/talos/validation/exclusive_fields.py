# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Talos takes as a field of the machine configuration or as a document of its own, and refuses when both are there."""

from __future__ import annotations

import typing as t

from ..documents import Document, at

# document -> fields that say the same
_FORMS = {
    "HostnameConfig": ("machine.network.hostname", "machine.features.stableHostname"),
    "KubeSpanConfig": ("machine.network.kubespan",),
    "ResolverConfig": ("machine.network.nameservers", "machine.network.searchDomains", "machine.network.disableSearchDomain"),
    "TimeSyncConfig": ("machine.time.servers", "machine.time.disabled", "machine.time.bootTimeout"),
}


def both_forms(configs: t.Sequence[Document], documents: t.Sequence[Document]) -> t.Iterator[str]:
    """A sentence for each pair that excludes each other."""
    for kind, fields in _FORMS.items():
        if not any(document.get("kind") == kind for document in documents):
            continue
        for field in fields:
            if any(at(config, field) not in (None, "", False, []) for config in configs):
                yield f"{field} and {kind} exclude each other; write {kind} only."
