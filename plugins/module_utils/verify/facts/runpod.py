# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod, REST API v2."""

from __future__ import annotations

import re
import typing as t

from ...providers.registry import CAPABILITIES
from .fact import WHEN, Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, aspects, life_facts

_SPEC = "RunPod's OpenAPI document 2.0.0 and its pages of August 2026"
_RECORDED = "answers recorded from the live service, August 2026"
_LEVEL = {"NONE", "LOW", "MEDIUM", "HIGH"}
_PLACE = re.compile(r"[A-Z]+(-[A-Z0-9]+)+")
_CUDA = re.compile(r"\d+\.\d+")
_CLOUD = CAPABILITIES["runpod"]
_STATES = tuple(_CLOUD.states)
_ASKED = {"include": "AVAILABILITY", "product": "POD", "cloud": "SECURE", "count": 1}
_WINDOW = re.compile(r'"minute";\s*r=\d+;\s*t=\d+')


def _one_gpu(replies: Replies) -> str:
    """The path of one GPU type of the catalogue; ids hold spaces."""
    found = values(replies["gpus"].json, "gpus.*.id") if "gpus" in replies else []
    usable = [one for one in found if isinstance(one, str) and " " in one]
    return f"/v2/catalog/gpus/{usable[0].replace(' ', '%20')}" if usable else ""


QUESTIONS = (
    Question("gpus", "GET", "/v2/catalog/gpus", _ASKED),
    Question("community", "GET", "/v2/catalog/gpus", {**_ASKED, "cloud": "COMMUNITY"}),
    Question("gpu", "GET", _one_gpu),
    Question("centres", "GET", "/v2/catalog/datacenters"),
    Question("list", "GET", "/v2/pods"),
    Question("charges", "GET", "/v2/billing/pods", {"bucketSize": "day", "lastN": 90}),
    Question("no_product", "GET", "/v2/catalog/gpus", {"include": "AVAILABILITY"}),
    Question("unknown_id", "GET", "/v2/pods/nosuchpod00000"),
    Question("bad_key", "GET", "/v2/pods", credential=False),
)
_offers = Group(
    "runpod", _SPEC, Basis.DOCUMENTED, "Offers of RunPod cannot be read, or have a wrong price, size or place: nothing is launched."
)
_lists = Group(
    "runpod", _SPEC, consequence="Half a list is taken for the whole one: pods are launched twice, or orphans are not found."
)
_bills = Group("runpod", _SPEC, consequence="The report cannot compare the ledger with the bill.", may_be_empty=True)
_errors = Group("runpod", _SPEC, consequence="The refusal is taken for something else: retried, or not reported as what it is.")
_pod = Group(
    "runpod", _SPEC, consequence="The pod is not recognised as ours, or its state, price or address is not known.", rented=True
)
_course = Group(
    "runpod",
    _RECORDED,
    Basis.RECORDED,
    "A pod that still pulls its image is taken for ready, or one that is ready for dead.",
    rented=True,
)


def _paging(replies: Replies) -> Verdict:
    body = replies["list"].json
    paging = body.get("pagination") if isinstance(body, dict) else None
    if paging is None:
        return verdict(True, "no pagination")
    good = (
        isinstance(paging, dict)
        and isinstance(paging.get("hasNextPage"), bool)
        and isinstance(paging.get("nextCursor"), (str, type(None)))
    )
    return verdict(good, "hasNextPage and nextCursor" if good else "another form")


def _limits(replies: Replies) -> Verdict:
    header = replies["list"].headers.get("ratelimit", "")
    return verdict(bool(_WINDOW.search(header)), "windows with r and t" if _WINDOW.search(header) else "absent or another form")


def _counts(replies: Replies) -> Verdict:
    found = [one for one in values(replies["gpus"].json, "gpus.*.maxCount.secure") if isinstance(one, int)]
    return not_seen("no maxCount") if not found else verdict(all(0 <= one <= 64 for one in found), f"{min(found)} to {max(found)}")


def _gone(replies: Replies) -> Verdict:
    reply = replies[GONE]
    words = texts(reply.json, "status")
    problem = isinstance(reply.json, dict) and bool(reply.json.keys() & {"detail", "title"})
    good = (reply.status == 404 and problem) or (reply.status == 200 and words == ["TERMINATED"])
    return verdict(good, f"HTTP {reply.status}{' with a problem' if problem else ''} {' '.join(words)}".strip())


def _pulling(replies: Replies) -> Verdict:
    """The recorded course, or the documented one; both are parsed."""
    life = replies["life"].json
    states = life.get("states") or []
    first = aspects(replies, "RUNNING", "runtime")
    if not states:
        return not_seen("no state was seen")
    if states[0] in ("PROVISIONING", "STARTING"):
        return verdict(True, f"{' then '.join(states)}, as documented")
    return verdict(
        states[0] == "RUNNING" and first[:1] in (["null"], ["filled"]), f"{states[0]}, runtime {' then '.join(first) or 'absent'}"
    )


def _runtime(replies: Replies) -> Verdict:
    seen = aspects(replies, "RUNNING", "runtime")
    return not_seen("it never ran") if not seen else verdict(seen[-1] == "filled", " then ".join(seen))


def _by_id(replies: Replies) -> Verdict:
    missing = replies["life"].json.get("missing_by_id")
    return not_seen("no look by the id") if missing is None else verdict(missing <= 120, f"404 for {missing:.0f} s")


def _problem(question: str, call: str, status: int, why: str = "") -> tuple[Fact, ...]:
    def media(replies: Replies) -> Verdict:
        found = replies[question].media
        return verdict(found == "application/problem+json", found or "none")

    return (
        _errors.status(question, call, status, why=why),
        *_errors.fields(question, call, [("title", str, why), ("status", int, why), ("detail", str, why), ("errors?", list, why)]),
        _errors.fact(
            f"{question}.media", f"{call} is answered as a problem", "application/problem+json", (question,), media, why=why
        ),
    )


def _catalogue(question: str, call: str) -> tuple[Fact, ...]:
    tier = "community" if question == "community" else "secure"
    rows: list[tuple[t.Any, ...]] = [
        ("gpus", list),
        ("gpus.*", dict),
        ("gpus.*.id", str),
        ("gpus.*.name", str),
        ("gpus.*.memory", int, "The memory of the GPUs is not known, so pools that ask for memory find none."),
        ("gpus.*.secure", bool),
        ("gpus.*.community", bool),
        ("gpus.*.price", dict, "Prices are wrong or unknown: limits cannot be kept."),
        (f"gpus.*.price.{tier}?", float, "Prices are wrong or unknown: limits cannot be kept."),
        ("gpus.*.maxCount", dict),
        (f"gpus.*.maxCount.{tier}", int),
        ("gpus.*.availability", _LEVEL, "GPUs that are sold out are launched."),
        ("gpus.*.cudaVersions?", list),
        ("gpus.*.cudaVersions.*", dict),
        ("gpus.*.cudaVersions.*.version", _CUDA),
        ("gpus.*.cudaVersions.*.available", bool),
    ]
    if tier == "secure":
        rows += [
            ("gpus.*.dataCenters?", list),
            ("gpus.*.dataCenters.*", dict),
            ("gpus.*.dataCenters.*.id", _PLACE),
            ("gpus.*.dataCenters.*.availability?", _LEVEL),
        ]
    return (_offers.status(question, call, 200), *_offers.fields(question, call, rows))


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    place = f"{root}." if root else ""
    rows: list[tuple[t.Any, ...]] = [
        ("id", str),
        ("name", str),
        ("status", set(_STATES)),
        ("env", dict, "Pods of ours are not recognised: they are launched twice and never garbage-collected."),
        ("gpu", dict),
        ("gpu.id", str),
        ("gpu.count", int),
        ("cloud", {"SECURE", "COMMUNITY"}),
        ("dataCenterId", (_PLACE, None)),
        ("cost", float, "The price that is really paid is not known, so limits cannot be kept."),
        ("disk", int),
        ("ports", list),
        ("runtime", (dict, None)),
        ("createdAt", WHEN),
        ("startedAt", (WHEN, None)),
    ]
    return tuple(_pod.fields(question, call, [(f"{place}{name}", *rest) for name, *rest in rows]))


FACTS: tuple[Fact, ...] = (
    *_catalogue("gpus", "GET /catalog/gpus?cloud=SECURE"),
    _offers.fact("gpus.counts", "maxCount is the number of GPUs of the largest machine", "0 to 64", ("gpus",), _counts),
    *_catalogue("community", "GET /catalog/gpus?cloud=COMMUNITY"),
    _offers.status("gpu", "GET /catalog/gpus/{id} with percent-encoded blanks", 200),
    *_offers.fields("gpu", "GET /catalog/gpus/{id}", [("id", str), ("price", dict)]),
    _offers.status("centres", "GET /catalog/datacenters", 200),
    *_offers.fields(
        "centres",
        "GET /catalog/datacenters",
        [
            ("dataCenters", list),
            ("dataCenters.*", dict),
            ("dataCenters.*.id", _PLACE),
            ("dataCenters.*.region", str),
            ("dataCenters.*.globalNetwork", bool),
        ],
    ),
    _lists.status("list", "GET /pods", 200),
    *_lists.fields("list", "GET /pods", [("pods", list)]),
    _lists.fact(
        "list.paging",
        "A list has no pagination, or hasNextPage and nextCursor",
        "absent, or {hasNextPage, nextCursor}",
        ("list",),
        _paging,
        basis=Basis.UNVERIFIED,
    ),
    _lists.fact(
        "list.ratelimit",
        "Every answer says in the header RateLimit how many calls are left",
        '"minute";r=…;t=…',
        ("list",),
        _limits,
        why="Calls are not paced by what the account has left, so runs are rate limited.",
    ),
    *_problem("no_product", "Availability without product", 400),
    *_problem("unknown_id", "A look at an unknown id", 404, "A pod that is gone is taken for one that exists."),
    *_problem("bad_key", "A call with an invalid key", 401),
    *_entry(LISTED, "pods.*", "GET /pods"),
    *_entry(MACHINE, "", "GET /pods/{id}"),
    *life_facts(_pod, _CLOUD, gone=_gone, gone_expected="HTTP 404 with a problem, or TERMINATED"),
    _course.fact(
        "life.pulling",
        "While the image is pulled a pod is RUNNING with runtime null (recorded), or PROVISIONING and STARTING (documented)",
        "RUNNING with runtime null, or PROVISIONING",
        ("life",),
        _pulling,
        basis=Basis.UNVERIFIED,
    ),
    _bills.status("charges", "GET /billing/pods", 200),
    *_bills.fields(
        "charges",
        "GET /billing/pods",
        [
            ("records", list),
            ("records.*", dict),
            ("records.*.podId", str, "The charges of a pod are not found."),
            ("records.*.totalAmount", float),
        ],
    ),
    _course.fact("life.runtime", "A pod whose container runs has a runtime", "runtime is filled", ("life",), _runtime),
    _course.fact(
        "life.by_id",
        "A new pod is not found by its id for at most 120 s",
        "at most 120 s",
        ("life",),
        _by_id,
        basis=Basis.UNVERIFIED,
        why="A pod that exists is taken for gone.",
    ),
)


def _more(body: t.Any) -> dict[str, t.Any]:
    paging = body.get("pagination") if isinstance(body, dict) else None
    cursor = paging.get("nextCursor") if isinstance(paging, dict) and paging.get("hasNextPage") is True else None
    return {"cursor": cursor} if isinstance(cursor, str) else {}


TABLE = Table(
    "runpod",
    QUESTIONS,
    FACTS,
    WatchCalls(
        "/v2/pods", "pods.*", "/v2/pods/{}", "", "status", ("runtime", "startedAt", "dataCenterId", "cudaVersion"), more=_more
    ),
)
