# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pairs of nodes are measured, what iperf3 says, and which pods are orphaned (S3-26)."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node
from ansible_collections.tgp.gpu.plugins.module_utils.model.cluster import Taint
from ansible_collections.tgp.gpu.plugins.module_utils.planner import mesh_benchmark
from ansible_collections.tgp.gpu.plugins.module_utils.planner.mesh_benchmark import BenchPod, MeshNode, MeshPair

from sandbox import iperf3

NOW = datetime(2026, 8, 20, 12, 0, tzinfo=timezone.utc)
EPHEMERAL = Taint("tgp.io/ephemeral", "true", "NoSchedule")
CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
DIRECT = {"rtt": 18_400, "bits": 941.3e6, "retransmits": 12}


def mesh_node(name: str, pool: str = "", mesh: str = "", **fields: t.Any) -> MeshNode:
    node = Node(name, f"uid-{name}", NOW, **{"ready": True, "taints": (EPHEMERAL,) if pool else (), **fields})
    return MeshNode(node, ours=bool(pool), pool=pool, mesh=mesh)


NODES = (
    mesh_node("gpu-3", "ml/training"),
    mesh_node("gpu-1", "ml/training"),
    mesh_node("gpu-2", "ml/training"),
    mesh_node("alone", "ml/own"),
    mesh_node("cp-1", taints=(CONTROL_PLANE,)),
    mesh_node("worker-2"),
    mesh_node("worker-1"),
)


def chosen(nodes: t.Sequence[MeshNode] = NODES, **options: t.Any) -> list[tuple[str, str]]:
    choice = mesh_benchmark.choose_pairs(nodes, **{"source": "", "target": "", "pool": "", "most": 3, **options})
    return [(pair.source.name, pair.target.name) for pair in choice.pairs]


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({"source": "gpu-1", "target": "gpu-3"}, [("gpu-1", "gpu-3")]),
        ({"source": "gpu-1", "target": "cp-1"}, [("gpu-1", "cp-1")]),
        ({"source": "gpu-2"}, [("gpu-2", "worker-1")]),
        ({"pool": "training"}, [("gpu-1", "gpu-2"), ("gpu-2", "gpu-3")]),
        ({"pool": "ml/training"}, [("gpu-1", "gpu-2"), ("gpu-2", "gpu-3")]),
        ({"pool": "training", "most": 1}, [("gpu-1", "gpu-2")]),
        ({"pool": "training", "target": "worker-2"}, [("gpu-1", "worker-2"), ("gpu-2", "worker-2"), ("gpu-3", "worker-2")]),
        ({"pool": "training", "target": "gpu-2"}, [("gpu-1", "gpu-2"), ("gpu-3", "gpu-2")]),
        ({"pool": "own"}, [("alone", "worker-1")]),
    ],
)
def test_S3_26_the_options_say_which_pairs_are_measured(options: dict[str, t.Any], pairs: list[tuple[str, str]]) -> None:
    assert chosen(**options) == pairs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "between which nodes"),
        ({"source": "gpu-1", "pool": "training"}, "given together"),
        ({"source": "gpu-1", "target": "gpu-1"}, "measured with itself"),
        ({"source": "gpu-9", "target": "gpu-1"}, "no Node gpu-9"),
        ({"source": "gpu-1", "target": "gpu-9"}, "no Node gpu-9"),
        ({"pool": "trainnig"}, "of a pool trainnig"),
        ({"target": "gpu-1"}, "between which nodes"),
    ],
)
def test_S3_26_options_that_name_no_pair_are_refused(options: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        chosen(**options)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ready": False, "ready_message": "cni plugin not initialized"}, r"is not Ready \(cni plugin not initialized\)"),
        ({"ready": None}, "is not Ready: its kubelet does not report"),
        ({"unschedulable": True}, "is cordoned"),
        ({"taints": (Taint("tgp.io/disrupted", "", "NoSchedule"),)}, "has the taint tgp.io/disrupted:NoSchedule"),
        ({"taints": (Taint("tgp.io/gpu-lost", "", "NoSchedule"),)}, "has the taint tgp.io/gpu-lost"),
        ({"taints": (Taint("tgp.io/initializing", "", "NoExecute"),)}, "has the taint tgp.io/initializing"),
        ({"taints": (Taint("node.kubernetes.io/unreachable", "", "NoExecute"),)}, "has the taint node.kubernetes.io"),
    ],
)
def test_S3_26_a_node_that_takes_no_pods_is_refused_by_name_and_left_out_of_its_pool(fields: dict[str, t.Any], words: str) -> None:
    bad = mesh_node("gpu-2", "ml/training", **fields)
    nodes = [*(one for one in NODES if one.name != "gpu-2"), bad]
    for options in ({"source": "gpu-2", "target": "gpu-1"}, {"source": "gpu-1", "target": "gpu-2"}):
        with pytest.raises(InvalidInput, match=f"Node gpu-2 cannot be measured: it {words}"):
            chosen(nodes, **options)
    choice = mesh_benchmark.choose_pairs(nodes, source="", target="", pool="training", most=3)
    assert [(pair.source.name, pair.target.name) for pair in choice.pairs] == [("gpu-1", "gpu-3")]
    assert len(choice.skipped) == 1 and choice.skipped[0].startswith("gpu-2 is not measured: it ")
    with pytest.raises(InvalidInput, match="No node of the pool training can be measured") as caught:
        chosen([bad, mesh_node("worker-1")], pool="training")
    assert "gpu-2 is not measured" in str(caught.value)


def test_S3_26_a_node_that_is_not_ours_is_chosen_only_where_pods_may_go() -> None:
    """One with a taint of somebody else is measured when it is named."""
    nodes = [mesh_node("gpu-1", "ml/training"), mesh_node("cp-1", taints=(CONTROL_PLANE,)), mesh_node("old", ready=None)]
    with pytest.raises(InvalidInput, match="no second node to measure gpu-1 with"):
        chosen(nodes, source="gpu-1")
    assert chosen(nodes, source="gpu-1", target="cp-1") == [("gpu-1", "cp-1")]


def test_S3_26_pairs_beyond_the_bound_are_named() -> None:
    choice = mesh_benchmark.choose_pairs(NODES, source="", target="worker-1", pool="training", most=2)
    assert len(choice.pairs) == 2 and choice.skipped == ("gpu-3 and worker-1 are not measured: more than 2 pairs.",)


def test_S3_26_pods_tolerate_exactly_the_taints_of_their_node() -> None:
    soft = Taint("example.org/slow", "", "PreferNoSchedule")
    node = mesh_node("gpu-1", "p", taints=(EPHEMERAL, CONTROL_PLANE, soft)).node
    assert mesh_benchmark.tolerations(node) == [
        {"key": "tgp.io/ephemeral", "effect": "NoSchedule", "operator": "Equal", "value": "true"},
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule", "operator": "Exists"},
    ]


@pytest.mark.parametrize(
    ("first", "second", "mesh", "path"),
    [
        ("wireguard", "wireguard", "wireguard", "relayed"),
        ("tailscale", "tailscale", "tailscale", "unknown"),
        ("tailscale", "", "tailscale", "unknown"),
        ("tailscale", "wireguard", "tailscale, wireguard", "unknown"),
        ("wireguard", "", "wireguard", "unknown"),
        ("", "", "", "unknown"),
    ],
)
def test_S3_26_a_path_is_called_relayed_only_where_that_is_known(first: str, second: str, mesh: str, path: str) -> None:
    pair = MeshPair(mesh_node("a", "p", first), mesh_node("b", "p", second))
    found, why = mesh_benchmark.path_between(pair)
    assert (mesh_benchmark.mesh_between(pair), found) == (mesh, path) and why


def test_S3_26_pods_outlive_the_longest_measurement_and_end_by_themselves() -> None:
    """Ten seconds each: 120 to start, 60 of refused connections, three runs of 25. The server waits for its client, too."""
    assert mesh_benchmark.longest(10, 120) == 120 + 60 + 3 * 25
    assert mesh_benchmark.deadlines(10, 120) == (435, 315)


def test_S3_26_a_refused_client_tries_for_a_minute() -> None:
    assert not mesh_benchmark.refused_for_good(NOW, NOW + timedelta(seconds=59))
    assert mesh_benchmark.refused_for_good(NOW, NOW + timedelta(seconds=60))


def test_S3_26_the_arguments_of_a_run() -> None:
    assert mesh_benchmark.server_arguments(5201) == ["-s", "-p", "5201"]
    common = ["-c", "10.244.1.7", "-p", "5201", "-t", "10", "-J", "--connect-timeout", "5000"]
    idle, forward, reverse = (mesh_benchmark.client_arguments(run, "10.244.1.7", 5201, 10) for run in mesh_benchmark.RUNS)
    assert (idle, forward, reverse) == ([*common, "-b", "320K", "-l", "4000"], common, [*common, "-R"])


# ---- what iperf3 says


def test_S3_26_a_report_gives_throughput_round_trips_and_retransmits() -> None:
    idle = mesh_benchmark.read_run(iperf3.report(DIRECT, 10, idle=True))
    assert (idle.rtt_mean_ms, idle.rtt_min_ms, idle.version) == (18.4, 17.48, "iperf 3.16")
    forward = mesh_benchmark.read_run(iperf3.report(DIRECT, 10))
    assert (round(forward.mbit_s, 1), forward.retransmits) == (941.3, 12)
    reverse = mesh_benchmark.read_run(iperf3.report(DIRECT, 10, reverse=True))
    assert (round(reverse.mbit_s, 1), reverse.retransmits, reverse.rtt_mean_ms) == (875.4, 12, None)


#: what iperf3 3.12 reported of a run with -R between two ends of one machine: the client does not send, so it knows no round trip
REVERSE: dict[str, t.Any] = {
    "streams": [
        {
            "sender": {
                "socket": 5,
                "end": 2.003431,
                "bytes": 2148270080,
                "retransmits": 15,
                "max_rtt": 0,
                "min_rtt": 0,
                "mean_rtt": 0,
                "sender": False,
            },
            "receiver": {"socket": 5, "end": 2.000089, "bytes": 2148270080, "bits_per_second": 8592697944.94145, "sender": False},
        }
    ],
    "sum_sent": {"end": 2.003431, "bytes": 2148270080, "bits_per_second": 8578364136.324136, "retransmits": 15, "sender": False},
    "sum_received": {"end": 2.000089, "bytes": 2148270080, "bits_per_second": 8592697944.94145, "sender": False},
}


def test_S3_26_a_report_that_iperf3_wrote_is_read() -> None:
    found = mesh_benchmark.read_run(json.dumps({"start": {"version": "iperf 3.12"}, "intervals": [], "end": REVERSE}))
    assert (round(found.mbit_s), found.retransmits, found.rtt_mean_ms, found.version) == (8593, 15, None, "iperf 3.12")


def test_S3_26_the_sandbox_reports_what_iperf3_does() -> None:
    """The same fields in the places that are read, and the same zeros."""
    told = json.loads(iperf3.report(DIRECT, 2, reverse=True))["end"]
    for name in ("sum_sent", "sum_received"):
        assert set(REVERSE[name]) <= set(told[name])
    assert set(REVERSE["streams"][0]["sender"]) <= set(told["streams"][0]["sender"])
    assert told["streams"][0]["sender"]["mean_rtt"] == 0 and told["sum_sent"]["sender"] is False


def test_S3_26_an_old_iperf3_reports_no_round_trip() -> None:
    old = mesh_benchmark.read_run(iperf3.report(DIRECT, 10, idle=True, old=True))
    assert (old.rtt_mean_ms, old.rtt_min_ms, old.version) == (None, None, "iperf 3.0.11") and old.mbit_s > 0


def test_S3_26_warnings_before_the_report_are_skipped() -> None:
    text = f"warning: Ignoring nonsense TCP MSS 0\n{iperf3.report(DIRECT, 10)}trailing\n"
    assert round(mesh_benchmark.read_run(text).mbit_s) == 941


@pytest.mark.parametrize(
    ("error", "again"),
    [
        ("unable to connect to server: Connection refused", True),
        (
            "unable to connect to server - server may have stopped running or use a different port, firewall issue, etc.: Connection refused",
            True,
        ),
        ("the server is busy running a test. try again later", True),
        ("control socket has closed unexpectedly", False),
        ("parameter exchange failed", False),
    ],
)
def test_S3_26_an_error_of_iperf3_is_quoted_and_only_a_refused_client_tries_again(error: str, again: bool) -> None:
    with pytest.raises(mesh_benchmark.RunFailed) as caught:
        mesh_benchmark.read_run(iperf3.report_of_error(error))
    assert caught.value.again is again and str(caught.value) == f"iperf3: {error}"


def changed(**ends: t.Any) -> str:
    report = json.loads(iperf3.report(DIRECT, 10))
    report["end"].update(ends)
    return json.dumps(report)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iperf Done.\n", "is not JSON: 'iperf Done.'"),
        ("", "printed nothing"),
        ("{broken", "is not JSON"),
        ("[1]", "is not JSON"),
        ("{}", "has no end.sum_received.bits_per_second"),
        (changed(sum_received="much"), "has no end.sum_received"),
        (changed(sum_received={"bits_per_second": "941"}), "has no end.sum_received"),
        (changed(sum_received={"bits_per_second": True}), "has no end.sum_received"),
        (changed(sum_received={"bits_per_second": -1}), "has no end.sum_received"),
        (changed(sum_received={"bits_per_second": float("nan")}), "has no end.sum_received"),
    ],
)
def test_S3_26_an_odd_output_is_an_error_that_quotes_it(text: str, words: str) -> None:
    with pytest.raises(mesh_benchmark.OddOutput) as caught:
        mesh_benchmark.read_run(text)
    assert words in str(caught.value) and "must contain iperf3" in str(caught.value)


def test_S3_26_a_quotation_is_cleaned_and_cut() -> None:
    with pytest.raises(mesh_benchmark.OddOutput) as caught:
        mesh_benchmark.read_run("the token " + "x" * 5000, lambda text: text.replace("token", "***"))
    assert "the *** xx" in str(caught.value) and len(str(caught.value)) < 500


def test_S3_26_nothing_that_arrived_is_no_measurement() -> None:
    with pytest.raises(mesh_benchmark.RunFailed, match="nothing arrived"):
        mesh_benchmark.read_run(changed(sum_received={"bits_per_second": 0}))


def test_S3_26_odd_extras_are_not_reported_instead_of_believed() -> None:
    found = mesh_benchmark.read_run(changed(streams=[], sum_sent={"retransmits": None}))
    assert (found.retransmits, found.rtt_mean_ms) == (None, None) and found.mbit_s > 900
    assert mesh_benchmark.read_run(changed(streams=[{"sender": {"mean_rtt": "fast"}}])).rtt_mean_ms is None


# ---- pods of other runs


def pod(name: str, **fields: t.Any) -> BenchPod:
    return BenchPod(name, f"uid-{name}", "host-1", NOW - timedelta(seconds=fields.pop("age", 60)), 435, **fields)


@pytest.mark.parametrize(
    ("fields", "left", "runs"),
    [
        ({"age": 434}, False, True),  # a second before its end
        ({"age": 435}, True, False),
        ({"owner_lives": True}, False, True),
        ({"owner_lives": False}, True, False),
        ({"owner_lives": None}, False, True),  # unknown never deletes
        ({"ended": True}, True, False),
        ({"deleting": True}, False, False),
    ],
)
def test_S3_26_orphans_are_pods_whose_run_is_over(fields: dict[str, t.Any], left: bool, runs: bool) -> None:
    pods = [pod("a", **fields)]
    assert ([one.name for one in mesh_benchmark.orphans(pods, NOW)] == ["a"], mesh_benchmark.busy(pods, NOW) is not None) == (
        left,
        runs,
    )


def test_S3_26_what_a_running_measurement_still_reads_stays() -> None:
    pods = [pod("client", ended=True), pod("server")]
    assert mesh_benchmark.orphans(pods, NOW) == () and mesh_benchmark.busy(pods, NOW) == pods[1]
