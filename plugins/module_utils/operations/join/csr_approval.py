# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines on their way that nobody waits for: which are complete by now, and who gets the certificate it asks for."""

from __future__ import annotations

import dataclasses
import typing as t

from ...core.errors import TgpError
from ...kube import csr
from ...model import Claim, Phase
from ...observe.context import Context, nodes_with_devices
from ...planner.provisioning.registration import not_initialized


@dataclasses.dataclass(frozen=True)
class Admitted:
    """The answer to a machine that asked: ``result`` is admitted, denied or error."""

    claim: Claim
    result: str
    message: str


def complete_ones(context: Context, claims: t.Sequence[Claim]) -> list[Claim]:
    """Those whose Node lacks nothing but our marks, those that are Ready already, and services, which were asked before."""
    if not claims:
        return []
    nodes_by_name = {node.name: node for node in nodes_with_devices(context)}

    def complete(claim: Claim) -> bool:
        if claim.phase is Phase.READY or claim.is_service:
            return True
        return not not_initialized(
            claim, nodes_by_name.get(claim.node_name or claim.name), context.specs.pool_of(claim.pool), marking=True
        )

    return [claim for claim in claims if complete(claim)]


def admit(context: Context, claims: t.Sequence[Claim]) -> list[Admitted]:
    """Answer each pending request that was made with the token of one of the claims; nothing for those that have not asked."""
    by_token = {claim.token_id: claim for claim in claims if claim.token_id}
    if not by_token:
        return []
    answers: list[Admitted] = []
    for request in csr.requests(context.kube):
        claim = by_token.get(request.token_id)
        if claim is None:
            continue
        try:
            answer = csr.answer(context.kube, request, token_id=claim.token_id, node=claim.node_name or claim.name)
        except TgpError as error:
            answers.append(Admitted(claim, "error", f"{request.name}: {error}"))
            continue
        if answer == "approved":
            answers.append(Admitted(claim, "admitted", f"{request.name} approved"))
        elif answer:
            faults = "; ".join(csr.wrong(request, token_id=claim.token_id, node=claim.node_name or claim.name))
            answers.append(Admitted(claim, "denied", f"{request.name} denied: {faults}"))
    return answers
