# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-25: documents that go, documents that are faulty, and what a claim remembers of them."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, time, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Calendar,
    Claim,
    CloudChoice,
    Deletion,
    DisruptionBudget,
    Plan,
    Pool,
    SecretRef,
    Source,
    Specs,
    Window,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import follow, from_record, remembered, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import Mode, mode_of
from hypothesis import given
from hypothesis import strategies as st

from .build import at, claim, decide, instance, node, node_class, of, offer, one, pod, pool, seen, specs

A, B = "file:/etc/tgp/a", "file:/etc/tgp/b"
REQUEST = pool("job-1", namespace="tgp-system", request=True, consolidate_after=None, expire_after=7200, source=A)
OTHER = pool("other", source=A)


def given_(*pools: Pool, source: str = A, problem: str = "", **more: t.Any) -> Specs:
    """A run over one source with these documents."""
    read = {source: Source(tuple(one.key for one in pools), problem)}
    return dataclasses.replace(specs(*(pools or (OTHER,))), pools=pools, sources=read, **more)


def machine(document: Pool = REQUEST, name: str = "tgp-a1b2c3d4-p-00001", **facts: t.Any) -> Claim:
    """Launched at 11:00 for a document that is remembered."""
    return follow(claim(name, pool=document.key, **facts), document, node_class())


class Life:
    """One machine over several runs: what a run decides is what the next one reads."""

    def __init__(self, first: Claim, **world: t.Any) -> None:
        self.claim, self.findings, self.world = first, {}, {"pods": (pod(),), **world}
        self.plan = Plan()

    def run(self, when: datetime | str, wanted: Specs, mode: str = "reap") -> list[str]:
        """The reasons for which the machine goes now, at most one."""
        now = at(when) if isinstance(when, str) else when
        observed = seen(now, claims=(self.claim,), nodes=(node(),), instances=(instance(),), findings=self.findings, **self.world)
        self.plan = decide(observed, wanted, mode)
        self.findings = dict(self.plan.findings)
        for action in of(self.plan, "update", "destroy"):
            assert action.claim is not None
            self.claim = action.claim
        return [action.reason for action in of(self.plan, "destroy")]


def test_L25_a_request_whose_document_is_removed_is_drained_ten_minutes_later() -> None:
    """maxLifetime 2h, launched at 11:00, removed at 12:00."""
    life = Life(machine())
    assert life.run("11:59", given_(REQUEST, OTHER)) == []
    assert life.run("12:00", given_(OTHER)) == [] and life.claim.document_gone_since == at("12:00")
    assert life.run("12:09:59", given_(OTHER)) == []
    assert life.run("12:10", given_(OTHER)) == ["DocumentGone"]
    assert mode_of("DocumentGone") is Mode.MANUAL is mode_of("Manual"), "drained without force"
    assert [notice.kind for notice in life.plan.notices] == ["document_gone"]


def test_L25_with_keep_it_ends_at_two_hours() -> None:
    kept = dataclasses.replace(REQUEST, orphaned_policy="Keep")
    life = Life(machine(kept))
    for minute in range(0, 60, 5):
        assert life.run(f"12:{minute:02}", given_(OTHER)) == []
    assert "orphanedPolicy: Keep" in " ".join(action.detail for action in of(life.plan, "report"))
    assert life.run("12:59:59", given_(OTHER)) == [] and life.run("13:00", given_(OTHER)) == ["Expired"]


def test_L25_a_run_over_the_folder_of_a_never_ends_machines_of_b() -> None:
    theirs = dataclasses.replace(REQUEST, source=B, expire_after=None)
    life = Life(machine(theirs))
    for hour in range(12, 20):
        assert life.run(f"{hour}:00", given_(OTHER)) == []
    assert life.claim.document_gone_since is None and not life.plan.failures


def test_L25_a_run_over_other_documents_ends_it_by_its_own_limits() -> None:
    theirs = dataclasses.replace(REQUEST, source=B, consolidate_after=1800)
    assert Life(machine(theirs)).run("13:00", given_(OTHER)) == ["Expired"]
    life = Life(machine(theirs), pods=())
    assert life.run("12:00", given_(OTHER)) == []
    noted = one(life.plan, "annotate")
    idle = node(annotations={"tgp.io/idle-since": str(noted.value)})
    observed = seen(at("12:30"), claims=(life.claim,), nodes=(idle,), instances=(instance(),))
    assert one(decide(observed, given_(OTHER)), "destroy").reason == "Empty"


@pytest.mark.parametrize(
    "read",
    [
        given_(problem="/etc/tgp/a holds no document."),
        given_(OTHER, problem="/etc/tgp/a could not be read in whole."),
        given_(OTHER, source=B),
        specs(OTHER),
    ],
    ids=["emptied folder", "broken file", "another source", "inline documents"],
)
def test_L25_what_is_unknown_ends_nothing(read: Specs) -> None:
    life = Life(machine(dataclasses.replace(REQUEST, expire_after=None)))
    for hour in range(12, 20):
        assert life.run(f"{hour}:00", read) == []
    assert life.claim.document_gone_since is None
    problem = next((source.problem for source in read.sources.values()), "")
    assert bool(problem) == bool(life.plan.warnings) == bool(life.plan.failures)
    assert [notice.kind for notice in life.plan.notices] == (["source_unread"] if problem else [])


def test_L25_one_of_two_documents_is_deleted_from_a_folder_that_holds_another() -> None:
    life = Life(machine(pool("p", consolidate_after=None, source=A)))
    assert life.run("12:00", given_(OTHER)) == [] and life.run("12:10", given_(OTHER)) == ["DocumentGone"]


def test_L25_a_list_of_the_cluster_is_believed_even_when_it_is_empty() -> None:
    listed = "cluster:gpurequests"
    life = Life(machine(dataclasses.replace(REQUEST, source=listed)))
    assert life.run("12:00", given_(source=listed)) == [] and life.run("12:10", given_(source=listed)) == ["DocumentGone"]


def test_L25_from_four_documents_on_a_loss_of_most_has_to_be_confirmed() -> None:
    four = [REQUEST, *(pool(name, source=A) for name in ("a", "b", "c"))]
    life = Life(machine())
    life.run("11:50", given_(*four))
    assert life.run("12:00", given_(four[1])) == [] and life.claim.document_gone_since is None, "three of four at once"
    assert life.run("12:00:59", given_(four[1])) == [] and life.claim.document_gone_since is None
    assert [notice.kind for notice in life.plan.notices] == ["source_unread"]
    assert life.run("12:01", given_(four[1])) == [] and life.claim.document_gone_since == at("12:01"), "the same, a minute later"
    assert life.run("12:11", given_(four[1])) == ["DocumentGone"]


def test_L25_half_of_four_documents_may_go_at_once_and_so_may_most_of_three() -> None:
    four = [REQUEST, *(pool(name, source=A) for name in ("a", "b", "c"))]
    for before, after in ((four, four[2:]), (four[:3], four[2:3])):
        life = Life(machine())
        life.run("11:50", given_(*before))
        assert life.run("12:00", given_(*after)) == [] and life.claim.document_gone_since == at("12:00")


def test_L25_a_loss_that_was_a_wrong_reading_leaves_no_trace() -> None:
    four = [REQUEST, *(pool(name, source=A) for name in ("a", "b", "c"))]
    life = Life(machine(dataclasses.replace(REQUEST, expire_after=None)))
    life.run("11:50", given_(*four))
    life.run("12:00", given_(four[1]))
    assert life.run("12:05", given_(*four)) == [] and not any("Shrunk" in key for key in life.findings)
    assert life.run("12:10", given_(four[1])) == [] and life.claim.document_gone_since is None, "doubted anew"


def test_L25_an_object_that_is_being_deleted_is_intent() -> None:
    going = given_(OTHER, held=(REQUEST,), deleted=frozenset({REQUEST.key}), paused={REQUEST.key: "its object is being deleted"})
    assert Life(machine()).run("12:00", going) == ["DocumentGone"]
    kept = dataclasses.replace(REQUEST, orphaned_policy="Keep")
    going = dataclasses.replace(going, held=(kept,))
    life = Life(machine(kept))
    assert life.run("12:00", going) == [] and life.run("13:00", going) == ["Expired"]


def test_L25_a_document_that_comes_back_takes_its_drain_back() -> None:
    begun = node(annotations={"tgp.io/drain-started": "2026-08-20T12:10:00Z"}, unschedulable=True)
    life = Life(machine())
    life.run("12:00", given_(OTHER))
    assert life.run("12:10", given_(OTHER)) == ["DocumentGone"]
    for wanted in (given_(OTHER, REQUEST), given_(OTHER, paused={REQUEST.key: "faulty"})):
        observed = seen(at("12:20"), claims=(life.claim,), nodes=(begun,), instances=(instance(),), pods=(pod(),))
        found = decide(observed, wanted)
        after = one(found, "update").claim
        assert after is not None and after.deletion is None and after.document_gone_since is None
        assert one(found, "restore").target == begun.name and not of(found, "destroy")


def test_L25_a_machine_adopted_without_a_document_follows_the_one_that_comes_back() -> None:
    """Its claim was lost while its document was gone, so nothing said which namespace its pool is in."""
    life = Life(claim("tgp-a1b2c3d4-p-00001", pool="unknown/job-1"))
    assert life.run("12:00", given_(OTHER)) == [] and life.claim.pool == "unknown/job-1"
    two = (REQUEST, dataclasses.replace(REQUEST, namespace="team-b"))
    assert life.run("12:05", given_(*two)) == [] and life.claim.pool == "unknown/job-1", "two of the name: neither is it"
    assert life.run("12:10", given_(REQUEST)) == [] and life.claim.pool == REQUEST.key
    assert life.run("13:01", given_(REQUEST)) == ["Expired"]


def test_L25_a_run_that_does_not_read_its_source_neither_continues_its_drain_nor_takes_it_back() -> None:
    life = Life(machine(), pods=())
    life.run("12:00", given_(OTHER))
    life.run("12:10", given_(OTHER))
    before = life.claim
    assert before.deletion is not None
    for wanted in (given_(OTHER, source=B), given_(problem="No document file at /etc/tgp/a.")):
        assert life.run("12:20", wanted) == [] and life.claim.deletion == before.deletion
    assert life.run("13:00", given_(OTHER, source=B)) == ["Expired"], "a limit of its own is stronger"


def test_L25_a_second_run_without_changes_writes_nothing() -> None:
    for wanted in (given_(OTHER), given_(REQUEST, OTHER), given_(OTHER, source=B), given_(problem="No document file at /x.")):
        life = Life(machine())
        life.run("12:00", wanted)
        findings = life.findings
        life.run("12:05", wanted)
        assert not of(life.plan, "update", "destroy", "annotate", "restore") and life.findings == findings


def test_L25_the_claim_follows_its_document_while_it_is_valid() -> None:
    life = Life(machine())
    longer = dataclasses.replace(REQUEST, expire_after=4 * 3600, orphaned_policy="Keep", source=B)
    assert life.run("12:30", given_(longer, source=B)) == []
    limits = life.claim.limits
    assert limits is not None and (limits.expire_after, limits.orphaned_policy, life.claim.source) == (4 * 3600, "Keep", B)
    assert life.run("13:30", given_(OTHER)) == [] and life.run("15:00", given_(OTHER)) == ["Expired"]


def test_L25_a_faulty_document_pauses_its_pool_and_leaves_its_machine_under_the_claims_limits() -> None:
    said = pool("p", min_nodes=1, consolidate_after=600, source=A)
    sentence = "p.yml#1: spec.maxHourlyPrice: 'cheap' is not an amount."
    faulty = given_(OTHER, paused={said.key: sentence}, faults={"p.yml#1": (sentence,)})
    observed = seen(at("12:30"), claims=(machine(said),), nodes=(node(annotations={"tgp.io/idle-since": "2026-08-20T12:00:00Z"}),),
                    instances=(instance(),), offers=(offer(),))  # fmt: skip
    for mode in ("reap", "autoscale", "everything", "provision"):
        found = decide(observed, faulty, mode)
        assert not of(found, "destroy", "launch"), "it is kept for minNodes"
        assert sentence in found.failures and ("document_fault", "p.yml#1") in {(one.kind, one.subject) for one in found.notices}
    assert "default/p" in found.notices[0].text
    expired = machine(dataclasses.replace(said, expire_after=3600))
    assert one(decide(dataclasses.replace(observed, claims=(expired,)), faulty), "destroy").reason == "Expired"


def test_L25_a_pool_whose_class_is_faulty_is_judged_by_its_own_document() -> None:
    said = pool("p", expire_after=3600, min_nodes=2, source=A)
    before = machine(dataclasses.replace(said, expire_after=None))
    held = given_(OTHER, held=(said,), paused={said.key: "its class c cannot be used"})
    observed = seen(at("12:30"), claims=(before,), nodes=(node(),), instances=(instance(),), pods=(pod(),), offers=(offer(),))
    found = decide(observed, held, "autoscale")
    assert one(found, "destroy").reason == "Expired" and not of(found, "launch")


def test_L25_a_request_that_expired_while_its_document_was_unread_is_not_rented_again() -> None:
    life = Life(machine())
    life.run("12:00", given_(REQUEST, OTHER), "autoscale")
    unread = given_(problem="No document file at /etc/tgp/a.")
    assert life.run("13:00", unread, "autoscale") == ["Expired"]
    gone = seen(at("13:10"), findings=life.findings, offers=(offer(),))
    again = decide(gone, unread, "autoscale")
    back = decide(seen(at("13:20"), findings=dict(again.findings), offers=(offer(),)), given_(REQUEST, OTHER), "autoscale")
    assert not of(back, "launch") and "has been served" in " ".join(back.warnings)


def test_L25_the_record_of_a_claim_keeps_every_limit() -> None:
    hours = Calendar("Europe/Berlin", (Window(frozenset({4, 0}), time(8), time(18, 30), 1, time(20)),))
    budgets = (DisruptionBudget("20%", ("Empty",), "0 9 * * 1-5", 3600),)
    said = pool("p", calendar=hours, disruption_budgets=budgets, expire_jitter=offer("0.1").price_hour, source=A, source_uid="u-1")
    known = follow(claim(), said, node_class(clouds=(CloudChoice("lambda", credentials=SecretRef("mine", "key")),)))
    read = from_record(to_record(known))
    assert read == known and read.limits is not None and read.limits.credentials == SecretRef("mine", "key")
    assert remembered(read) == dataclasses.replace(said, source="", source_uid="")


def test_L25_the_record_of_a_claim_of_version_0_1_is_read() -> None:
    record = to_record(claim())
    for name in ("source", "source_uid", "limits", "document_gone_since"):
        del record[name]
    read = from_record(record)
    assert (read.source, read.limits, read.document_gone_since) == ("", None, None)
    found = decide(seen(claims=(read,), nodes=(node(),), instances=(instance(),), pods=(pod(),)), given_(pool("x", source=A)))
    assert not of(found, "destroy") and not _gone_since(found), "nothing is known of its document, so it is not gone"


def _gone_since(found: Plan) -> list[Claim]:
    claims = [action.claim for action in of(found, "update") if action.claim is not None]
    return [one for one in claims if one.document_gone_since is not None]


READS = st.sampled_from(["there", "gone", "unread", "unknown", "faulty", "deleted"])


@given(st.lists(st.tuples(READS, st.integers(30, 900)), min_size=1, max_size=12), st.sampled_from(["Drain", "Keep"]))
def test_L25_nothing_but_two_good_reads_ten_minutes_apart_ends_a_machine(story: list[tuple[str, int]], policy: str) -> None:
    """Property: DocumentGone is decided exactly when the document was missed for ten minutes without being seen in between, or is being
    deleted, and is continued only by runs that miss it; never with Keep."""
    document = pool("p", consolidate_after=None, orphaned_policy=policy, source=A)
    worlds = {
        "there": given_(document, OTHER),
        "gone": given_(OTHER),
        "unread": given_(OTHER, source=B),
        "unknown": given_(problem="No document file at /etc/tgp/a."),
        "faulty": given_(OTHER, paused={document.key: "faulty"}),
        "deleted": given_(OTHER, held=(document,), deleted=frozenset({document.key}), paused={document.key: "being deleted"}),
    }
    life, now = Life(machine(document)), at("12:00")
    missed: datetime | None = None
    begun = False
    for read, seconds in story:
        now += timedelta(seconds=seconds)
        if read in ("there", "faulty", "deleted"):
            missed, begun = None, False
        elif read == "gone":
            missed = missed or now
        long = missed is not None and now - missed >= timedelta(minutes=10)
        due = read == "deleted" or (read == "gone" and (begun or long))
        begun = begun or due
        assert life.run(now, worlds[read]) == (["DocumentGone"] if due and policy == "Drain" else []), (read, now)
        if life.claim.deletion is not None:
            assert isinstance(life.claim.deletion, Deletion) and policy == "Drain"
