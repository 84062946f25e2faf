# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a RunPod account has besides single pods: templates, clusters, pages, and its balance."""

from __future__ import annotations

import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest

from sandbox.graphql import Type
from sandbox.runpod_graphql_pods import POD
from sandbox.world import Machine
from sandbox.wsgi import is_write

from .runpod_stand import H100, RTX4090, Stand


@pytest.fixture
def still() -> t.Iterator[Stand]:
    """Time moves only when it is told to."""
    one = Stand(speed=0.001)
    yield one
    one.close()


# ---- templates

TEMPLATE: dict[str, t.Any] = {
    "name": "mine",
    "image": "registry.example/train:1",
    "entrypoint": ["/bin/sh", "-c"],
    "cmd": ["serve"],
    "disk": 33,
    "ports": ["22/tcp"],
    "env": {"A": "template", "B": "template"},
    "mounts": {"persistent": {"size": 10, "path": "/data"}},
    "allowedCudaVersions": ["13.0"],
}
FIELDS = {
    "id", "name", "image", "args", "entrypoint", "cmd", "disk", "mounts", "ports", "env", "registry", "serverless", "public", "category",
    "startSsh", "startJupyter", "allowedCudaVersions",
}  # fmt: skip


def made(stand: Stand, **more: t.Any) -> str:
    answer = stand.call("POST", "/v2/templates", {**TEMPLATE, **more})
    assert answer.status_code == 201 and set(answer.json()) == FIELDS, answer.text
    return str(answer.json()["id"])


def test_the_life_of_a_template(still: Stand) -> None:
    identity = made(still)
    path = f"/v2/templates/{identity}"
    shown = still.call("GET", path).json()
    assert shown["category"] == "NVIDIA" and shown["startSsh"] is True and shown["args"].startswith('{"entrypoint":')
    assert still.call("GET", "/v2/templates").json() == {"templates": [shown]}
    changed = still.call("PATCH", path, {"name": "other", "cmd": ["train"], "mounts": {}}).json()
    assert changed == {**shown, "name": "other", "cmd": ["train"], "args": changed["args"]}
    assert changed["args"] == '{"entrypoint":["/bin/sh","-c"],"cmd":["train"]}'
    assert still.call("DELETE", path).status_code == 204
    for method in ("GET", "DELETE"):
        assert still.call(method, path).status_code == 404
    assert still.call("GET", "/v2/templates").json() == {"templates": []}


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"name": ""}, 422, "$.name"),
        ({"category": "TPU"}, 422, "$.category"),
        ({"mounts": {"network": []}}, 422, "$.mounts: additional properties 'network' not allowed"),
        ({"allowedCudaVersions": ["12"]}, 422, "$.allowedCudaVersions[0]"),
        ({"gpu": {"id": RTX4090}}, 422, "$: additional properties 'gpu' not allowed"),
        ({"registry": "none"}, 404, "registry not found"),
        ({"args": "other"}, 400, "another command"),
    ],
)
def test_templates_that_are_refused(still: Stand, change: dict[str, t.Any], status: int, says: str) -> None:
    answer = still.call("POST", "/v2/templates", {**TEMPLATE, **change})
    assert answer.status_code == status and says in answer.text and not still.account.templates


def test_public_templates_may_be_used_and_not_changed(still: Stand) -> None:
    (public,) = still.call("GET", "/v2/catalog/templates").json()["templates"]
    assert set(public) == FIELDS and public["public"] and public["registry"] is None
    assert still.call("GET", "/v2/catalog/templates?source=community").json() == {"templates": []}
    assert still.call("GET", "/v2/catalog/templates?source=mine").status_code == 422
    path = f"/v2/templates/{public['id']}"
    assert still.call("GET", path).json() == public
    assert still.call("PATCH", path, {"name": "mine"}).status_code == still.call("DELETE", path).status_code == 404
    body = {"name": "p", "templateId": public["id"], "gpu": {"id": RTX4090, "count": 1}}
    assert still.call("POST", "/v2/pods", body).json()["image"] == public["image"]


def test_a_pod_copies_a_templates_settings_once(still: Stand) -> None:
    still.account.ssh_keys = ["ssh-ed25519 AAAA me"]
    identity = made(still)
    body = {"name": "p", "templateId": identity, "gpu": {"id": RTX4090, "count": 1}, "env": {"B": "body"}, "disk": 40}
    pod = still.call("POST", "/v2/pods", body).json()
    assert (pod["image"], pod["disk"], pod["ports"]) == (TEMPLATE["image"], 40, ["22/tcp"])
    assert pod["env"] == {"A": "template", "B": "body"} and pod["mounts"] == TEMPLATE["mounts"]
    assert pod["cudaVersion"] == "13.0" and (pod["entrypoint"], pod["cmd"]) == (["/bin/sh", "-c"], ["serve"])
    assert pod["template"] is None, "no way leads back"
    assert {"PUBLIC_KEY", "JUPYTER_PASSWORD"} <= set(still.world.machines[pod["id"]].details["environment"])
    still.call("PATCH", f"/v2/templates/{identity}", {"image": "registry.example/train:2"})
    assert still.call("GET", f"/v2/pods/{pod['id']}").json()["image"] == TEMPLATE["image"]


def test_what_of_a_template_does_not_reach_a_pod(still: Stand) -> None:
    identity = made(still)
    body = {"name": "p", "templateId": identity, "gpu": {"id": RTX4090, "count": 1, "minCudaVersion": "12.4"}, "cmd": ["other"]}
    pod = still.call("POST", "/v2/pods", body).json()
    assert pod["cudaVersion"] == "12.8" and pod["cmd"] == ["other"] and pod["entrypoint"] == ["/bin/sh", "-c"]
    cpu = still.call("POST", "/v2/pods", {"name": "c", "templateId": identity, "cpu": {"id": "cpu3c", "vcpuCount": 2}}).json()
    assert cpu["mounts"] == {} and cpu["image"] == TEMPLATE["image"]
    refused = still.call("POST", "/v2/pods", {**body, "templateId": made(still, serverless=True)})
    assert refused.status_code == 422 and "serverless template" in refused.text


def test_a_change_may_take_a_template_and_leaves_the_mount(still: Stand) -> None:
    mounts = {"persistent": {"size": 20, "path": "/own"}}
    pod = still.pod(still.order(mounts=mounts, env={"OWN": "1"}))
    path = f"/v2/pods/{pod.id}"
    changed = still.call("PATCH", path, {"templateId": made(still), "image": "own:2"}).json()
    assert (changed["image"], changed["disk"], changed["cmd"], changed["mounts"]) == ("own:2", 33, ["serve"], mounts)
    assert changed["env"] == TEMPLATE["env"], "the variables of a change replace the old ones"
    moved = {"persistent": {"size": 20, "path": "/moved"}}
    assert still.call("PATCH", path, {"mounts": moved}).json()["mounts"] == moved and pod.details["mounts"] == ["/moved"]
    for wrong in ({"persistent": {"size": 30, "path": "/moved"}}, {"network": [{"volumeId": "v", "path": "/moved"}]}):
        assert still.call("PATCH", path, {"mounts": wrong}).status_code == 400
    assert still.call("PATCH", path, {"mounts": {"persistent": {"path": "/moved"}}}).status_code == 422


# ---- clusters


def cluster(kind: str = "SLURM", pods: int = 3, gpus: int = 2, **more: t.Any) -> dict[str, t.Any]:
    compute = {"gpuTypeId": RTX4090, "gpuCountPerPod": gpus, "podCount": pods}
    return {"name": "train", "type": kind, "compute": compute, "image": "registry.example/train:1", **more}


def test_a_cluster_is_pods_of_one_shape_in_one_place(still: Stand) -> None:
    answer = still.call("POST", "/v2/clusters", cluster(ports=["22/tcp"], cmd=["serve"]))
    made = answer.json()
    assert answer.status_code == 201 and made["dataCenterId"] == "EU-RO-1" and made["compute"]["podCount"] == 3
    assert made["pods"] == {"total": 3, "byStatus": {"RUNNING": 3}} and made["network"]["cidr"] == "10.65.0.0/16"
    path = f"/v2/clusters/{made['id']}"
    pods = still.call("GET", f"{path}/pods").json()["pods"]
    assert [one["cluster"]["rank"] for one in pods] == [0, 1, 2] and {one["dataCenterId"] for one in pods} == {"EU-RO-1"}
    assert [one["cluster"]["role"] for one in pods] == ["SLURM_CONTROLLER", "SLURM_COMPUTE", "SLURM_COMPUTE"]
    assert len({one["cluster"]["ip"] for one in pods}) == 3 and {one["gpu"]["count"] for one in pods} == {2}
    assert made["primary"]["podId"] == pods[0]["id"] and "sshEndpoint" not in made["primary"]
    assert still.world.machines[pods[2]["id"]].details["environment"]["NODE_RANK"] == "2"
    assert still.call("GET", "/v2/clusters").json() == {"clusters": [made]} and still.call("GET", path).json() == made
    assert still.call("PATCH", path, {"name": "other"}).json() == {**made, "name": "other"}
    assert still.call("PATCH", path, {}).status_code == 422
    assert still.call("DELETE", path).status_code == 204
    assert all(machine.ended is not None for machine in still.world.machines.values())
    assert still.call("GET", path).status_code == 404 and still.call("GET", "/v2/clusters").json() == {"clusters": []}


def test_the_members_of_a_cluster_are_managed_with_it(still: Stand) -> None:
    alone = still.pod(still.order())
    made = still.call("POST", "/v2/clusters", cluster("TRAINING", pods=2)).json()
    listed = {one["id"] for one in still.call("GET", "/v2/pods").json()["pods"]}
    everything = still.call("GET", "/v2/pods?includeClusterPods=true").json()["pods"]
    members = [one for one in everything if one["id"] != alone.id]
    assert listed == {alone.id} and len(everything) == 3
    assert all(set(one["cluster"]) == {"id", "rank", "ip"} and one["cluster"]["id"] == made["id"] for one in members)
    path = f"/v2/pods/{members[0]['id']}"
    assert still.call("GET", path).json() == members[0]
    refused = [
        still.call("DELETE", path),
        still.call("PATCH", path, {"name": "x"}),
        still.call("POST", f"{path}/action", {"action": "stop"}),
    ]
    assert [one.status_code for one in refused] == [409] * 3 and made["id"] in refused[0].json()["detail"]
    assert still.world.machines[members[0]["id"]].ended is None


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (cluster(pods=1), 422, "$.compute.podCount"),
        (cluster(pods=251), 422, "$.compute.podCount"),
        (cluster(kind="BATCH"), 422, "$.type"),
        (cluster(registry="none"), 422, "additional properties 'registry' not allowed"),
        (cluster(image=""), 422, "missing property 'image'"),
        (cluster(pods=5), 400, "no longer any instances"),
        (cluster(pods=2, dataCenterIds=["US-KS-2"]), 400, "no longer any instances"),
    ],
)
def test_a_cluster_that_is_refused_makes_no_pod(still: Stand, body: dict[str, t.Any], status: int, says: str) -> None:
    """Eight GPUs stand in one data centre and two in another: five pods of two do not fit, wherever they are."""
    answer = still.call("POST", "/v2/clusters", body)
    assert answer.status_code == status and says in answer.text, answer.text
    assert not still.world.machines and not still.account.clusters


def test_a_cluster_needs_the_money_for_all_its_pods(still: Stand) -> None:
    still.account.balance = Decimal(2)
    assert still.call("POST", "/v2/clusters", cluster(pods=2)).status_code == 402 and not still.world.machines
    assert still.call("POST", "/v2/clusters", cluster(pods=2, gpus=1)).status_code == 201


def test_bills_of_pods_and_of_clusters(still: Stand) -> None:
    alone = still.pod(still.order())
    made = still.call("POST", "/v2/clusters", cluster("RAY", pods=2)).json()
    still.world.clock.advance(3900)  # the last five minutes are not billed yet
    alone_only = "/v2/billing/pods?startTime=2020-01-01T00:00:00Z"
    assert "provided together" in still.call("GET", alone_only).json()["detail"]
    pods = still.call("GET", "/v2/billing/pods?bucketSize=year").json()
    (record,) = pods["records"]
    assert record["podId"] == alone.id and set(record) == {
        "podId", "startTime", "endTime", "totalAmount", "gpuAmount", "cpuAmount", "diskAmount",
    }  # fmt: skip
    assert pods["metadata"]["recordCount"] == pods["metadata"]["uniquePodCount"] == 1
    (record,) = still.call("GET", f"/v2/billing/clusters?bucketSize=year&clusterId={made['id']}").json()["records"]
    assert round(record["gpuAmount"], 2) == 2.36 and record["networkingAmount"] == 0.0
    assert round(record["diskAmount"], 6) == round(2 * 20 * 0.10 / 730, 6)
    assert still.call("GET", "/v2/billing/clusters?clusterId=none").json()["records"] == []
    assert (
        still.call("POST", "/v2/clusters", {**cluster(), "compute": {**cluster()["compute"], "gpuTypeId": H100}}).status_code == 400
    )


# ---- pages


def test_every_list_comes_in_pages(still: Stand) -> None:
    still.account.page_size, still.account.spend_limit = 2, Decimal(1000)
    path = "/v2/clusters/{}/pods".format(still.call("POST", "/v2/clusters", cluster(pods=3, gpus=1)).json()["id"])
    for number in range(3):
        made(still, name=f"t{number}")
        still.pod(still.order(f"tgp-{number}"))
        still.call("POST", "/v2/registries", {"name": f"r{number}", "username": "u", "password": "p"})
        still.call("POST", "/v2/network-volumes", {"name": f"v{number}", "size": 10, "dataCenter": "EU-RO-1"})
    lists = {
        "/v2/templates": "templates",
        "/v2/pods": "pods",
        "/v2/pods?includeClusterPods=false": "pods",
        "/v2/registries": "registries",
        "/v2/network-volumes": "networkVolumes",
        path: "pods",
    }
    for address, key in lists.items():
        first = still.call("GET", address).json()
        assert first["pagination"]["hasNextPage"] is True
        more = {"cursor": first["pagination"]["nextCursor"], **({"includeClusterPods": "false"} if "?" in address else {})}
        second = still.call("GET", address.partition("?")[0], params=more).json()
        assert second["pagination"] == {"hasNextPage": False, "nextCursor": None}
        assert (len(first[key]), len(second[key])) == (2, 1) and len({one["id"] for one in first[key] + second[key]}) == 3
    assert still.call("GET", "/v2/clusters").json()["pagination"] == {"hasNextPage": False, "nextCursor": None}


def test_a_limit_and_a_cursor_are_checked(still: Stand) -> None:
    still.account.page_size = 1000
    for number in range(3):
        still.pod(still.order(f"tgp-{number}"))
    first = still.call("GET", "/v2/pods?limit=1").json()
    cursor = first["pagination"]["nextCursor"]
    assert len(first["pods"]) == 1 and len(still.call("GET", "/v2/pods", params={"cursor": cursor}).json()["pods"]) == 2
    gone = first["pods"][0]["id"]
    still.call("DELETE", f"/v2/pods/{gone}")
    assert len(still.call("GET", "/v2/pods", params={"cursor": cursor}).json()["pods"]) == 2, "its place in the list remains"
    foreign = {"/v2/templates": {"cursor": cursor}, "/v2/pods": {"cursor": cursor, "includeClusterPods": "true"}}
    for path, query in foreign.items():
        assert still.call("GET", path, params=query).status_code == 422
    for wrong in ("cursor=", "cursor=c1", "cursor=%FF", "limit=0", "limit=1001", "limit=many"):
        assert still.call("GET", f"/v2/pods?{wrong}").status_code == 422, wrong


# ---- GraphQL


def ask(stand: Stand, query: str, **variables: t.Any) -> dict[str, t.Any]:
    answer = stand.call("POST", "/graphql", {"query": query, "variables": variables})
    assert answer.status_code == 200 and not answer.json().get("errors"), answer.text
    return t.cast("dict[str, t.Any]", answer.json()["data"])


def test_balance_spend_and_limit_are_told(still: Stand) -> None:
    """REST v2 tells none of them."""
    question = "query { myself { id email clientBalance currentSpendPerHr spendLimit pods { id desiredStatus costPerHr } } }"
    assert ask(still, question)["myself"]["clientBalance"] is None, "a balance without an end"
    still.account.balance = Decimal(10)
    machine = still.pod(still.order())
    still.world.clock.advance(3600)
    shown = ask(still, question)["myself"]
    assert shown["currentSpendPerHr"] == float(machine.rate()) and shown["spendLimit"] == 80.0
    assert abs(shown["clientBalance"] - (10 - float(machine.rate()))) < 0.001
    assert shown["pods"] == [{"id": machine.id, "desiredStatus": "RUNNING", "costPerHr": 0.59}]
    still.world.clock.advance(100 * 3600)
    broke = ask(still, question)["myself"]
    assert (broke["clientBalance"], broke["currentSpendPerHr"], broke["pods"][0]["desiredStatus"]) == (0.0, 0.0, "EXITED")


def test_a_key_is_good_for_graphql_too(still: Stand) -> None:
    key, body = still.world.secrets["RUNPOD_API_KEY"], {"query": "{ myself { id } countryCodes }"}
    none = still.http.post("/graphql", json=body, headers={"authorization": ""})
    assert none.status_code == 200 and none.json()["data"]["myself"] is None and "RO" in none.json()["data"]["countryCodes"]
    assert still.http.post("/graphql", json=body, headers={"authorization": "Bearer rpa_wrong"}).status_code == 401
    older = still.http.post(f"/graphql?api_key={key}", json=body, headers={"authorization": ""})
    assert older.json()["data"]["myself"] == {"id": "user_sandbox"}
    assert not is_write("POST", "/graphql") and is_write("POST", "/v2/pods")
    still.account.graphql = False
    assert still.http.post("/graphql", json=body).status_code == 410


def test_gpu_types_with_their_lowest_prices(still: Stand) -> None:
    question = """query Types($wanted: GpuTypeFilter, $count: Int = 8) {
      gpuTypes(input: $wanted) {
        id name: displayName memoryInGb secureCloud communityPrice secureSpotPrice maxGpuCount
        all: lowestPrice(input: {gpuCount: 1}) { uninterruptablePrice stockStatus minMemory availableGpuCounts }
        lowestPrice(input: {gpuCount: $count, secureCloud: true}) { stockStatus gpuTypeCudaVersions { cudaVersion availability } }
      }
    }"""
    (card,) = ask(still, question, wanted={"id": RTX4090})["gpuTypes"]
    assert (card["name"], card["memoryInGb"], card["secureCloud"], card["communityPrice"]) == ("RTX 4090", 24, True, 0.34)
    assert card["secureSpotPrice"] is None and card["maxGpuCount"] == 8
    assert card["all"] == {
        "uninterruptablePrice": 0.34, "stockStatus": "High", "minMemory": 48, "availableGpuCounts": [1, 2, 3, 4, 5, 6, 7, 8],
    }  # fmt: skip
    assert card["lowestPrice"] == {"stockStatus": "Low", "gpuTypeCudaVersions": [{"cudaVersion": "12.8", "availability": "Low"}]}
    (sold_out,) = ask(still, question, wanted={"id": H100}, count=1)["gpuTypes"]
    assert sold_out["lowestPrice"]["stockStatus"] is None and sold_out["all"]["availableGpuCounts"] == []
    assert len(ask(still, "{ gpuTypes { id } }")["gpuTypes"]) > 20


def test_a_pod_by_its_id(still: Stand) -> None:
    machine = still.pod(still.order(ports=["22/tcp"]))
    question = """query ($id: String!) { pod(input: {podId: $id}) {
      __typename id machineId desiredStatus runtime { uptimeInSeconds ports { ip isIpPublic privatePort publicPort type } }
    } }"""
    shown = ask(still, question, id=machine.id)["pod"]
    assert (shown["__typename"], shown["id"], shown["desiredStatus"], shown["runtime"]) == ("Pod", machine.id, "RUNNING", None)
    still.until(lambda: "phase" in machine.details)  # its own story has begun, and waits
    now = still.world.clock.seconds()
    machine.state, machine.ip = "active", "203.0.113.9"
    machine.details.update(started=now - 60, phase="running")
    runtime = ask(still, question, id=machine.id)["pod"]["runtime"]
    (port,) = runtime["ports"]
    assert runtime["uptimeInSeconds"] == 60 and port["isIpPublic"] and (port["privatePort"], port["ip"]) == (22, "203.0.113.9")
    assert ask(still, question, id="none") == {"pod": None}


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("{ myself { clientbalance } }", "GRAPHQL_VALIDATION_FAILED", 'Cannot query field "clientbalance" on type "User"'),
        ("{ myself }", "GRAPHQL_VALIDATION_FAILED", "must have a selection"),
        ("{ myself { id { x } } }", "GRAPHQL_VALIDATION_FAILED", "must not have a selection"),
        ("{ __schema { types } }", "GRAPHQL_VALIDATION_FAILED", "introspection is not allowed"),
        ("{ pod(input: {podId: $id}) { id } }", "GRAPHQL_VALIDATION_FAILED", 'Variable "$id" is not defined'),
        ("{ myself { id }", "GRAPHQL_PARSE_FAILED", "Unexpected '<EOF>'"),
        ("{ }", "GRAPHQL_PARSE_FAILED", "Unexpected '}'"),
        ("{ myself { id } } }", "GRAPHQL_PARSE_FAILED", "Unexpected '}'"),
        ("{ myself { id ; } }", "GRAPHQL_PARSE_FAILED", "Unexpected ';'"),
        ("{ pod(input: {podId: ]}) { id } }", "GRAPHQL_PARSE_FAILED", "Unexpected ']'"),
        ("subscription { pods { id } }", "GRAPHQL_VALIDATION_FAILED", "not configured for subscriptions"),
        ('mutation { podTerminate(input: {podId: "x"}) }', "POD_NOT_FOUND", "pod not found to terminate"),
        ('mutation { podRentInterruptable(input: {name: "x"}) { id } }', "GRAPHQL_VALIDATION_FAILED", "podRentInterruptable"),
        ("mutation { podFindAndDeployOnDemand(input: {bid: 1}) { id } }", "BAD_USER_INPUT", 'Field "bid" is not defined'),
        ('mutation { podFindAndDeployOnDemand(input: {gpuCount: "two"}) { id } }', "BAD_USER_INPUT", "invalid value"),
        ("mutation { podFindAndDeployOnDemand(input: {gpuCount: 1}) { id } }", "UNPROCESSABLE_ENTITY", "missing property 'name'"),
        ("{ gpuTypes { lowestPrice(input: {gpuCount: 0.5}) { stockStatus } } }", "BAD_USER_INPUT", "gpuCount"),
        ('{ gpuTypes(input: "x") { id } }', "BAD_USER_INPUT", 'Argument "input"'),
        ('mutation { podStop(input: ["x"]) { id } }', "BAD_USER_INPUT", 'Argument "input"'),
        ('{ gpuTypes { lowestPrice(input: {minCudaVersion: "twelve"}) { stockStatus } } }', "BAD_USER_INPUT", "minCudaVersion"),
        ('{ pod(input: {podId: "\\x"}) { id } }', "GRAPHQL_PARSE_FAILED", "Unexpected"),
        (None, "BAD_REQUEST", "POST body missing"),
    ],
)
def test_faults_of_a_query_come_with_status_200(still: Stand, query: str | None, code: str, says: str) -> None:
    answer = still.call("POST", "/graphql", {"query": query})
    (fault,) = answer.json()["errors"]
    assert answer.status_code == 200 and fault["extensions"] == {"code": code} and says in fault["message"], fault
    assert "data" not in answer.json()


@pytest.mark.parametrize("selected", ["", "{ idd }", "{ id runtime }", "{ id { x } }", "{ runtime { ports { port } } }"])
def test_a_mutation_is_read_as_a_whole_before_any_of_it_is_done(still: Stand, selected: str) -> None:
    wanted = f'{{name: "x", imageName: "i:1", gpuTypeId: "{RTX4090}", gpuCount: 1}}'
    answer = still.call("POST", "/graphql", {"query": f"mutation {{ podFindAndDeployOnDemand(input: {wanted}) {selected} }}"})
    assert answer.json()["errors"][0]["extensions"] == {"code": "GRAPHQL_VALIDATION_FAILED"}
    assert not still.world.machines and still.world.writes == []


def test_a_mutation_may_ask_for_every_field_of_a_pod(still: Stand) -> None:
    def names(what: Type) -> str:
        return " ".join(f"{name} {{ {names(one)} }}" if one else name for name, one in what.fields.items())

    wanted = f'{{name: "x", imageName: "i:1", gpuTypeId: "{RTX4090}", gpuCount: 1, ports: "22/tcp"}}'
    made = ask(still, f"mutation {{ podFindAndDeployOnDemand(input: {wanted}) {{ __typename {names(POD)} }} }}")
    assert set(made["podFindAndDeployOnDemand"]) == {"__typename", *POD.fields}
    shown = ask(still, "{ myself { pods { " + names(POD) + " } } }")["myself"]["pods"][0]
    assert set(shown) == set(POD.fields)


RENT = "mutation Rent($input: PodFindAndDeployOnDemandInput!) { podFindAndDeployOnDemand(input: $input) { id machineId } }"


def rent(stand: Stand, **more: t.Any) -> Machine:
    """As older clients order a pod."""
    wanted = {"name": "old", "imageName": "i:1", "gpuTypeId": RTX4090, "gpuCount": 1, "dockerArgs": "", **more}
    return stand.world.machines[ask(stand, RENT, input=wanted)["podFindAndDeployOnDemand"]["id"]]


def test_an_older_client_rents_stops_resumes_and_terminates(still: Stand) -> None:
    machine = rent(
        still, gpuCount=2, cloudType="SECURE", ports="22/tcp, 8888/http", env=[{"key": "A", "value": "b"}], containerDiskInGb=30,
        volumeInGb=10, volumeMountPath="/data", minMemoryInGb=96, minVcpuCount=16, countryCode="RO", dockerArgs="serve", supportPublicIp=True,
    )  # fmt: skip
    shown = still.show(machine)
    assert (shown["ports"], shown["env"], shown["disk"], shown["args"]) == (["22/tcp", "8888/http"], {"A": "b"}, 30, "serve")
    assert shown["mounts"] == {"persistent": {"size": 10, "path": "/data"}} and shown["dataCenterId"] == "EU-RO-1"
    assert shown["gpu"]["count"] == 2
    pod = {"input": {"podId": machine.id}}
    stop = "mutation ($input: PodStopInput!) { podStop(input: $input) { desiredStatus } }"
    assert ask(still, stop, **pod)["podStop"] == {"desiredStatus": "EXITED"}
    resume = "mutation ($input: PodResumeInput!) { podResume(input: $input) { desiredStatus } }"
    assert ask(still, resume, **pod)["podResume"] == {"desiredStatus": "RUNNING"}
    assert ask(still, f'mutation {{ podTerminate(input: {{podId: "{machine.id}"}}) }}') == {"podTerminate": None}
    assert machine.ended is not None and len(still.world.writes) == 4


def test_any_tier_is_tried_and_the_refusal_of_the_last_is_told(still: Stand) -> None:
    still.world.offers[:] = [shelf for shelf in still.world.offers if shelf.details["tier"] == "COMMUNITY"]
    assert rent(still, cloudType="ALL").details["tier"] == "COMMUNITY"
    for more in ({"cloudType": "SECURE"}, {"countryCode": "ZZ"}, {"minMemoryInGb": 4000}):
        wanted = {"name": "old", "imageName": "i:1", "gpuTypeId": RTX4090, "gpuCount": 1, **more}
        answer = still.call("POST", "/graphql", {"query": RENT, "variables": {"input": wanted}}).json()
        assert (
            answer["errors"][0]["extensions"]["code"] == "BAD_REQUEST" and "instances available" in answer["errors"][0]["message"]
        )


def test_the_cloud_itself_keeps_a_limit_in_time(still: Stand) -> None:
    """REST v2 has no such limit: a pod outlives whoever was to end it."""
    now = still.world.clock.now()
    stopped = rent(still, stopAfter=(now + timedelta(hours=1)).isoformat())
    ended = rent(still, name="other", terminateAfter=f"{now + timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}")
    still.world.clock.advance(3000)
    assert {still.show(one)["status"] for one in (stopped, ended)} == {"RUNNING"}
    still.world.clock.advance(700)
    still.until(lambda: still.show(stopped)["status"] == "EXITED")
    assert still.show(ended)["status"] == "RUNNING"
    still.world.clock.advance(3600)
    still.until(lambda: ended.ended is not None)
    assert [one["id"] for one in still.call("GET", "/v2/pods").json()["pods"]] == [stopped.id]
    late = rent(still, name="late", terminateAfter=now.isoformat())
    still.until(lambda: late.ended is not None)
    wanted = {"name": "x", "imageName": "i:1", "gpuTypeId": RTX4090, "stopAfter": "tomorrow"}
    refused = still.call("POST", "/graphql", {"query": RENT, "variables": {"input": wanted}}).json()
    assert "stopAfter" in refused["errors"][0]["message"] and len(still.world.machines) == 3


def test_who_may_change_something(still: Stand) -> None:
    still.world.secrets["RUNPOD_READ_ONLY_KEY"] = "rpa_READONLY_0123456789"
    machine = still.pod(still.order())
    body = {"query": f'mutation {{ podTerminate(input: {{podId: "{machine.id}"}}) }}'}
    nobody = still.http.post("/graphql", json=body, headers={"authorization": ""})
    assert nobody.json()["errors"][0]["extensions"]["code"] == "UNAUTHENTICATED"
    reader = still.http.post("/graphql", json=body, headers={"authorization": "Bearer rpa_READONLY_0123456789"})
    assert reader.status_code == 403 and machine.ended is None and still.world.writes == []
