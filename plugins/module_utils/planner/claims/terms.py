# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a claim remembers of its documents (L-25), so that its machine is judged although they are absent or faulty."""

from __future__ import annotations

import dataclasses

from ...model import Claim, Limits, NodeClass, Pool

_OF_POOL = tuple(field.name for field in dataclasses.fields(Limits) if field.name not in ("credentials", "mesh_tags"))


def follow(claim: Claim, pool: Pool, node_class: NodeClass | None) -> Claim:
    """The claim with what its documents say now. A class that is absent or faulty leaves what is known of it."""
    before = claim.limits
    credentials, tags = (before.credentials, before.mesh_tags) if before is not None else (None, ())
    if node_class is not None:
        choice = next((one for one in node_class.clouds if one.cloud == claim.cloud), None)
        credentials, tags = choice.credentials if choice is not None else None, node_class.mesh.tags
    limits = Limits(**{name: getattr(pool, name) for name in _OF_POOL}, credentials=credentials, mesh_tags=tags)
    known = (claim.source, claim.source_uid, claim.limits, claim.document_gone_since)
    if known == (pool.source, pool.source_uid, limits, None):
        return claim
    return dataclasses.replace(claim, source=pool.source, source_uid=pool.source_uid, limits=limits, document_gone_since=None)


def remembered(claim: Claim) -> Pool | None:
    """Its pool as far as the claim tells; None for a claim of version 0.1."""
    if claim.limits is None:
        return None
    namespace, _slash, name = claim.pool.rpartition("/")
    return Pool(namespace, name, claim.node_class, **{one: getattr(claim.limits, one) for one in _OF_POOL})
