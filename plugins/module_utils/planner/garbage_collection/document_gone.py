# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that go, and documents that are faulty (L-25, reason DocumentGone).

Only a run that reads the source of a machine's document, and reads it in whole, may say that the document is gone. Everything else leaves
that unknown: nothing ends for it, and the machine stays under the limits that its claim remembers.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

from ...model import Claim, Source
from ...model.reasons import Finding, Reason
from ...units.values import print_duration, print_time
from ..claims.record import LIVE
from ..plan_builder import SECOND_RUN_AFTER, Draft

DOCUMENT_GONE_AFTER: t.Final = 600  # seconds for which a document must be gone before its machines are drained (L-25)
_INVENTORY, _SHRUNK = "Document|", "SourceShrunk|"
_FEW = 4  # documents; of fewer than these a loss of most does not suggest a wrong reading


def tell(draft: Draft) -> None:
    """Faulty documents and sources that could not be read, as failures of the run and as notices. What is good goes on."""
    specs = draft.situation.specs
    for place, sentences in specs.faults.items():
        stopped = [key for key, why in specs.paused.items() if any(sentence in why for sentence in sentences)]
        so = f" Nothing is launched for {', '.join(stopped)} until it is corrected." if stopped else ""
        draft.failures.extend(sentences)
        draft.notice("document_fault", place, f"{' '.join(sentences)}{so}")
    for name, source in specs.sources.items():
        if source.problem and (not source.quiet or any(claim.source == name for claim in draft.situation.claims)):
            text = f"{source.problem} Which of its documents are gone is unknown, so no machine ends for that."
            draft.warnings.append(text)
            draft.failures.append(text)
            draft.notice("source_unread", name, text)
    draft.judged |= {"document_fault", "source_unread"}


def reconcile(draft: Draft) -> None:
    """Drain the machines of documents that are gone for long enough; take a drain back whose document is there again."""
    sources = draft.situation.specs.sources
    doubtful = {name for name in sources if _has_shrunk(draft, name, sources[name])}
    _keep_inventories(draft)
    for settled in list(draft.undecided()):
        if settled.claim.phase in LIVE:
            _reconcile(draft, settled.claim, doubtful)
    draft.judged |= {"document_gone"}


def is_pending(claim: Claim) -> bool:
    """Whether a drain for this reason was begun. A run that cannot tell whether the document is still gone neither continues it nor takes
    it back."""
    return claim.deletion is not None and claim.deletion.reason == Reason.DOCUMENT_GONE


def may_stand(draft: Draft, pool: str) -> bool:
    """Whether a document of this key may exist, although no valid one was read: it is faulty, or its source was not read in whole."""
    return pool in draft.situation.specs.paused or any(
        key.startswith(_INVENTORY) and key.endswith(f"|{pool}") for key in draft.findings
    )


def _reconcile(draft: Draft, claim: Claim, doubtful: set[str]) -> None:
    situation, specs = draft.situation, draft.situation.specs
    if claim.pool in specs.deleted:
        _end(draft, claim, "its object is being deleted")
        return
    if claim.pool in specs.paused or situation.pool(claim) is not None:
        if is_pending(claim) or claim.document_gone_since is not None:
            deletion = None if is_pending(claim) else claim.deletion
            draft.change(dataclasses.replace(claim, deletion=deletion, document_gone_since=None))
        return
    if claim.limits is None:
        _without_limits(draft, claim)
        return
    source = specs.sources.get(claim.source)
    if source is None or source.problem or claim.source in doubtful:
        return
    since = claim.document_gone_since or draft.now
    claim = dataclasses.replace(claim, document_gone_since=since)
    draft.change(claim)
    due = since + timedelta(seconds=DOCUMENT_GONE_AFTER)
    cause = f"its document is gone from {claim.source} since {print_time(since)}"
    if draft.now >= due or _keeps(claim) or is_pending(claim):
        _end(draft, claim, cause)
        return
    draft.report(claim.name, Reason.DOCUMENT_GONE, f"{cause}; it is drained from {print_time(due)} on", pool=claim.pool)
    _notice(draft, claim, f"{cause}; from {print_time(due)} on its machines are drained and deleted (orphanedPolicy: Drain).")


def _end(draft: Draft, claim: Claim, cause: str) -> None:
    if not _keeps(claim):
        draft.destroy(claim, Reason.DOCUMENT_GONE, cause)
        _notice(draft, claim, f"{cause}; its machines are drained and deleted (orphanedPolicy: Drain).")
        return
    if is_pending(claim):
        draft.change(dataclasses.replace(claim, deletion=None))
    draft.report(
        claim.name, Finding.KEPT, f"{cause}; it stays under the limits of its claim (orphanedPolicy: Keep)", pool=claim.pool
    )
    _notice(draft, claim, f"{cause}; its machines stay under the limits of their claims (orphanedPolicy: Keep).")


def _keeps(claim: Claim) -> bool:
    return claim.limits is not None and claim.limits.orphaned_policy == "Keep"


def _notice(draft: Draft, claim: Claim, text: str) -> None:
    draft.notice("document_gone", claim.pool, f"{claim.pool}: {text}", source=claim.source)


def _without_limits(draft: Draft, claim: Claim) -> None:
    """A claim of version 0.1: nothing is known of its limits until its document is read once."""
    text = (
        f"{claim.name}: no document describes its pool {claim.pool} in this run, and its claim, made by version 0.1, holds no limits: "
        f"it is billed ${claim.price}/h without end. Give its document once, or take the machine down with destroy.yml."
    )
    draft.warnings.append(text)
    draft.notice("document_gone", claim.pool, text)


# ---- how many documents a source had


def _has_shrunk(draft: Draft, name: str, source: Source) -> bool:
    """Note what is in a source. True when it lost more than half of four or more documents since the last run: whether they are gone is
    unknown until a later run finds the same."""
    prefix = f"{_INVENTORY}{name}|"
    if source.problem:
        draft.keep_sightings(prefix)
        return False
    earlier = {key.removeprefix(prefix) for key in draft.situation.seen.findings if key.startswith(prefix)}
    missed = {claim.pool for claim in draft.situation.claims if claim.source == name and claim.document_gone_since is not None}
    earlier |= {claim.pool for claim in draft.situation.claims if claim.source == name and claim.pool not in missed}
    for pool in source.pools:
        draft.sighted(f"{prefix}{pool}")
    lost = earlier - set(source.pools) - draft.situation.specs.deleted
    if len(earlier) < _FEW or 2 * len(lost) <= len(earlier) or draft.twice(f"{_SHRUNK}{name}"):
        return False
    draft.keep_sightings(prefix)
    wait = print_duration(SECOND_RUN_AFTER)
    text = (
        f"{name} had {len(earlier)} documents of pools and requests and has {len(earlier) - len(lost)} now, which looks like a wrong reading: "
        f"no machine ends for that unless a run at least {wait} later finds the same."
    )
    draft.warnings.append(text)
    draft.notice("source_unread", name, text)
    return True


def _keep_inventories(draft: Draft) -> None:
    """What sources hold that this run does not read, as long as it matters to a machine or to a request that was served."""
    situation = draft.situation
    used = {claim.source for claim in situation.claims}
    for key, first in situation.seen.findings.items():
        if not key.startswith((_INVENTORY, _SHRUNK)):
            continue
        name, _bar, pool = key.partition("|")[2].rpartition("|") if key.startswith(_INVENTORY) else (key.partition("|")[2], "", "")
        if name not in situation.specs.sources and (name in used or (pool and f"Served||{pool}" in situation.seen.findings)):
            draft.findings.setdefault(key, first)
