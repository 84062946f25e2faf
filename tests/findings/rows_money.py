# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items 5, 6 and 7: offers, calls, costs."""

from __future__ import annotations

import typing as t

import httpx

from tests.mistakes.desk import Change, Document

from .desk import Desk, Done
from .row import Row, ended
from .rows_modules import POD, market

CHOICE = "tests/unit/fleet/test_L13_offers.py"
CALLS = "tests/contract/act/test_offer_calls.py"
GOOD = {"gpu": "RTX 4090", "price": "0.50", "vm": True, "reliability": 0.99, "inet_down": 900.0, "place": "Oregon, US"}
FLAKY = market(vast={"offers": [GOOD, {"gpu": "RTX 4090", "price": "0.10", "vm": True, "reliability": 0.5}]})
SLOW = market(vast={"offers": [GOOD, {"gpu": "RTX 4090", "price": "0.10", "vm": True, "inet_down": 5.0}]})
WITHDRAWN = market(vast={"offers": [GOOD, {"gpu": "RTX 4090", "price": "0.10", "vm": True, "vm_deverified": True}]})
ANYWHERE = market(vast={"offers": [{**GOOD, "place": ", US"}]})
PREMIUM = market(vast={"offers": [{**GOOD, "premium": "0.25", "traffic_down": "0.05", "traffic_up": "0.05"}]})
HOSTS = market(
    runpod={
        "offers": [
            {"type": "NVIDIA GeForce RTX 4090", "region": "EU-RO-1", "tier": "SECURE", "stock": 8, "price": "0.59"},
            {"type": "NVIDIA GeForce RTX 4090", "region": "EU-RO-1", "tier": "COMMUNITY", "stock": 8, "price": "0.69"},
        ]
    }
)


def _for(*clouds: str, gpu: str = "", **pool: t.Any) -> Change:
    """These clouds only; ``gpu``: of this model."""

    def change(node_class: Document, training: Document) -> None:
        known = {one["name"]: one for one in node_class["spec"]["providers"]}
        node_class["spec"]["providers"] = [known.get(name, {"name": name}) for name in clouds]
        wanted = [{"key": "tgp.io/gpu-type", "operator": "In", "values": [gpu]}] if gpu else []
        training["spec"]["template"]["spec"]["requirements"] = wanted + pool.pop("requirements", [])
        training["spec"].update({"maxHourlyPrice": "5.00", **pool})

    return change


def _planned(*clouds: str, gpu: str = "", spot: bool = False, **pool: t.Any) -> t.Callable[[Desk], Done]:
    def play(desk: Desk) -> Done:
        def change(node_class: Document, training: Document) -> None:
            _for(*clouds, gpu=gpu, **dict(pool))(node_class, training)
            if spot:
                node_class["spec"]["instanceRequirements"] = {"spotAllowed": True}

        return desk.playbook("provision", "--check", documents=desk.documents(change), nodes=1)

    return play


def _in(region: str) -> list[Document]:
    return [{"key": "tgp.io/region", "operator": "In", "values": [region]}]


# ---- odd entries


def _odd_type(desk: Desk) -> Done:
    """One type of Lambda without a price."""
    known = desk.sandbox.variables
    headers = {"authorization": f"Bearer {known['LAMBDA_API_KEY']}"}
    body = httpx.get(f"{known['LAMBDA_API_URL']}/api/v1/instance-types", headers=headers).raise_for_status().json()
    next(iter(body["data"].values()))["instance_type"]["price_cents_per_hour"] = None
    desk.sandbox.faults({"service": "lambda", "path": "/instance-types$", "kind": "body", "body": body, "times": None})
    return desk.module("offer_info", clouds=["lambda"], cache="none")


def _odd_row(desk: Desk) -> Done:
    """One offer of Vast.ai without the name of its GPU."""
    known = desk.sandbox.variables
    headers = {"authorization": f"Bearer {known['VAST_API_KEY']}"}
    url = f"{known['VAST_URL']}/api/v0/bundles/"
    body = httpx.post(url, headers=headers, json={"limit": 64}).raise_for_status().json()
    body["offers"][0]["gpu_name"] = None
    desk.sandbox.faults({"service": "vast", "path": "/bundles/", "kind": "body", "body": body, "times": None})
    return desk.module("offer_info", clouds=["vast"], cache="none")


def _full(desk: Desk) -> Done:
    """RunPod answers the first create call with a 500 whose text is lack of capacity."""
    body = {"title": "Internal Server Error", "status": 500, "detail": "There are no instances currently available"}
    desk.sandbox.faults({"service": "runpod", "method": "POST", "path": "/v2/pods$", "kind": "status", "status": 500, "body": body})
    return desk.module("runpod_pod", **POD, name=desk.name, wait=False)


def _blocked(desk: Desk) -> Done:
    """Lambda's front answers with a page."""
    rule = {"service": "lambda", "kind": "status", "status": 403, "body": "<html>Attention Required!</html>", "times": None}
    desk.sandbox.faults(rule)
    both = _for("lambda", "webhook", gpu="A10")
    return desk.playbook("provision", "--check", documents=desk.documents(both), nodes=1)


SPOT = [{"key": "tgp.io/spot", "operator": "In", "values": ["true"]}]
ITEM_5 = [
    Row(
        5, "one unreadable type of Lambda is dropped with a warning", _odd_type,
        ended(2, "price_cents_per_hour"), ended(0, "1 entry of what it offers cannot be read and is left out"),
        "tests/contract/clouds/test_odd_offers.py::test_any_field_may_be_anything_and_the_other_offers_stay",
    ),
    Row(
        5, "one unreadable offer of Vast.ai is dropped with a warning", _odd_row,
        ended(2, "gpu_name"), ended(0, "cannot be read and is left out"),
        "tests/contract/clouds/test_odd_offers.py::test_any_field_may_be_anything_and_the_other_offers_stay", "four-clouds",
    ),
    Row(
        5, "nodes of Vast.ai: reliability of at least 0.95", _planned("vast", gpu="RTX4090"),
        ended(0, "then $0.1"), ended(0, "then $0.5"),
        f"{CHOICE}::test_L13_hosts_of_nodes_at_vast_are_good_ones_unless_something_else_is_said", FLAKY,
    ),
    Row(
        5, "nodes of Vast.ai: download of at least 200 Mbit/s", _planned("vast", gpu="RTX4090"),
        ended(0, "then $0.1"), ended(0, "then $0.5"),
        f"{CHOICE}::test_L13_hosts_of_nodes_at_vast_are_good_ones_unless_something_else_is_said", SLOW,
    ),
    Row(
        5, "hosts of which Vast.ai withdrew virtual machines are refused", _planned("vast", gpu="RTX4090"),
        ended(0, "then $0.1"), ended(0, "then $0.5"),
        "tests/unit/clouds/test_vast_records.py::test_S1_02_virtual_machines_that_vast_withdrew_become_no_nodes", WITHDRAWN,
    ),
    Row(
        5, "the place `, US` is region us", _planned("vast", gpu="RTX4090", requirements=_in("us")),
        ended(2, "will not come"), ended(0, "then $0.5"), "tests/unit/clouds/test_vast_records.py::test_places", ANYWHERE,
    ),
    Row(
        5, "region us covers us-*", _planned("lambda", gpu="A10", requirements=_in("us")),
        ended(2, "will not come"), ended(0, "then $1.29"), "tests/unit/fleet/test_L13_offers.py::test_L13_operators",
    ),
    Row(
        5, "a 500 of RunPod that means lack of capacity goes to the next candidate", _full,
        ended(2, "500"), ended(0, "localhost | CHANGED"),
        "tests/contract/clouds/test_runpod.py::test_L14_answers_to_a_launch", HOSTS, alone=True,
    ),
    Row(
        5, "reasons: a provider that is blocked", _blocked,
        ended(2, "will not come: gpu type"), ended(2, "will not come: lambda"),
        f"{CHOICE}::test_L13_a_cloud_that_could_not_be_read_is_told_before_offers_that_never_fitted",
    ),
    Row(
        5, "reasons: no spot there", _planned("lambda", gpu="A10", spot=True, requirements=SPOT),
        ended(2, "spot not allowed"), ended(2, "it rents no interruptible machines"),
        f"{CHOICE}::test_L13_no_spot_there_is_the_reason_and_not_offers_of_clouds_that_nobody_named",
    ),
    Row(
        5, "reasons: the lane is missing, in a class with other clouds too", _planned("runpod", "lambda", gpu="RTX4090"),
        ended(2, "will not come: gpu type"), ended(2, "cannot be Kubernetes nodes"),
        f"{CHOICE}::test_L13_in_a_mixed_class_each_cloud_says_its_cause",
    ),
]  # fmt: skip

# ---- item 6


def _asked(desk: Desk, *plays: t.Callable[[], Done], path: str = "/os-templates|/machine-availability|/instance-types") -> Done:
    """How many calls for offers each of these made."""
    counts, done = [], Done(0, "")
    for one in plays:
        desk.sandbox.clear_faults()
        desk.sandbox.faults({"path": path, "kind": "delay", "seconds": 0, "times": None})
        done = one()
        counts.append(str(desk.sandbox.hits()))
    return Done(done.rc, f"{done.text}\ncalls for offers: {', '.join(counts)}")


def _idle(desk: Desk) -> Done:
    given = desk.documents(_for("lambda", "paperspace", gpu="A4000"))
    return _asked(desk, lambda: desk.playbook("autoscale", documents=given))


def _twice(desk: Desk) -> Done:
    given = desk.documents(_for("lambda", gpu="A10"))
    saved = str(desk.folder / "plan.json")

    desk.sandbox.control.post("/clock", json={"speed": 2}).raise_for_status()  # what is remembered serves for five minutes

    def plan() -> Done:
        return desk.playbook("plan", documents=given, plan=saved, mode="provision", nodes=1)

    def provision() -> Done:
        desk.sandbox.control.post("/clock", json={"speed": desk.sandbox.speed}).raise_for_status()
        return desk.playbook("provision", documents=given, nodes=1)

    return _asked(desk, plan, plan, provision)


ITEM_6 = [
    Row(
        6, "autoscale.yml without a waiting pod asks for no offers", _idle,
        ended(0, "calls for offers: 7"), ended(0, "calls for offers: 0"),
        f"{CALLS}::test_a_run_that_rents_asks_once_and_one_with_nothing_to_rent_never", "four-clouds",
    ),
    Row(
        6, "the cache is on (plan, plan again), and bypassed before a launch (provision)", _twice,
        ended(0, "calls for offers: 1, 1, 1"), ended(0, "calls for offers: 1, 0, 1"),
        f"{CALLS}::test_a_run_that_rents_asks_again_although_it_remembers", alone=True,
    ),
]  # fmt: skip

# ---- item 7

BILL = """
import os, subprocess, sys, tempfile, time, httpx
folder = tempfile.mkdtemp()
env = os.path.join(folder, "env")
run = subprocess.Popen([sys.executable, "-m", "sandbox", "up", "--env-file", env, "--state-dir", folder], stdout=subprocess.DEVNULL)
try:
    while not os.path.exists(env):
        time.sleep(0.05)
    known = dict(line.strip().split("=", 1) for line in open(env) if "=" in line)
    known = {key: value.strip("'\\"") for key, value in known.items()}
    body = {"name": "x", "image": "debian", "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 1}, "cloud": "SECURE", "disk": 2000}
    headers = {"authorization": "Bearer " + known["RUNPOD_API_KEY"]}
    print(httpx.post(known["RUNPOD_API_URL"] + "/v2/pods", json=body, headers=headers).status_code)
    (one,) = [one for one in httpx.get(known["SANDBOX_URL"] + "/world").json()["machines"] if one["name"] == "x"]
    print("rate", one["rate"], "of which GPU", one["price_hour"])
finally:
    run.terminate()
    run.wait()
"""


def _bill(desk: Desk) -> Done:
    return desk.python(BILL, shown="python -m sandbox up; POST /v2/pods with disk 2000; GET /world")


def _capped(desk: Desk) -> Done:
    return desk.module("runpod_pod", **POD, name=desk.name, disk_gib=1000, max_price_hour="0.60", wait=False)


def _useful(desk: Desk) -> Done:
    given = desk.provision()
    desk.sandbox.advance(3 * 3600)
    desk.playbook("destroy", documents=given, everything=True)
    return desk.playbook("report", documents=None)


ITEM_7 = [
    Row(
        7, "RunPod: the container's disk is in price and cap", _capped,
        ended(0, "localhost | CHANGED"), ended(2, "0.60"),
        "tests/contract/clouds/test_instance_modules.py::test_an_existing_machine_over_the_price_limit_is_not_taken", HOSTS,
    ),
    Row(
        7, "RunPod: the disk is in the bill of the sandbox", _bill,
        ended(0, "rate 0.59 "), ended(0, "rate 0.8"), "tests/unit/sandbox/test_runpod_more.py::test_bills_of_pods_and_of_clusters",
    ),
    Row(
        7, "Vast.ai: the premium for promised reliability is in the price",
        lambda desk: desk.module("vast_instance", "--check", name=desk.name, gpu_type="RTX 4090", max_price_hour="0.70"),
        ended(0, "localhost | CHANGED"), ended(2, "0.70"),
        "tests/unit/clouds/test_vast_records.py::test_L13_a_premium_for_reliability_is_part_of_the_price", PREMIUM,
    ),
    Row(
        7, "Vast.ai: the premium is in the price of a plan, from which budgets are reserved", _planned("vast", gpu="RTX4090"),
        ended(0, "then $0.5"), ended(0, "then $0.7"),
        "tests/unit/clouds/test_vast_records.py::test_L16_a_machine_costs_its_premium_too", PREMIUM,
    ),
    Row(
        7, "Vast.ai: traffic is an estimate of its own, with its assumption",
        lambda desk: desk.playbook("prices", documents=None, clouds="vast"),
        ended(0, "vast", never=("traffic",)), ended(0, "an estimate for 30 GB downloaded once and 1 GB per hour"),
        "tests/unit/fleet/test_L16_traffic.py::test_L16_traffic_is_estimated_from_a_stated_assumption", PREMIUM,
    ),
    Row(
        7, "report.yml calls hours useful only when a pod ran", _useful,
        ended(0, "useful 2"), ended(0, "no hour of it was useful"),
        "tests/contract/act/test_report.py::test_A07_hours_without_a_pod_are_not_useful", alone=True,
    ),
]  # fmt: skip
