# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the DaemonSet nvidia-powerlimit, really run by a shell, with a stand-in for nvidia-smi that repeats what real ones say.

A stand-in for ``sleep`` ends each round at once: it carries out what happens to the machine before the next round, and after the last one
it ends the program as the kubelet does, by SIGTERM.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.power_limit_script import SCRIPT

from tests import outsiders

Row = dict[str, t.Any]
COLUMNS = (
    "index",
    "uuid",
    "name",
    "power.limit",
    "power.min_limit",
    "power.max_limit",
    "power.draw",
    "utilization.gpu",
    "persistence_mode",
)
RTX_3090 = "NVIDIA GeForce RTX 3090|350.00|100.00|350.00|174.40|87|Disabled"
T4 = "Tesla T4|70.00|60.00|70.00|9.61|0|Enabled"
TABLE = "300 GeForce RTX 3090\n65 Tesla T4\n"

# What real ones say. Exit status 9 and 12: Debian's nvidia-smi 550 without a driver and without its library.
NO_DRIVER = (
    9,
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed "
    "and running.\n",
)
NO_LIBRARY = (
    12,
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is ...\n",
)
NO_PERMISSION = (4, "Failed to set power management limit for GPU 00000000:01:00.0: Insufficient Permissions\n")
NOT_SUPPORTED = (
    0,
    "Changing power management limit is not supported for GPU: 00000000:01:00.0.\nTreating as warning and moving on.\nAll done.\n",
)
OUT_OF_RANGE = (
    2,
    "Provided power limit 300.00 W is not a valid power limit which should be between 100.00 W and 250.00 W for GPU 00000000:01:00.0\n"
    "Terminating early due to previous errors.\n",
)
PERSISTENCE_WARNING = "Warning: persistence mode is disabled on device 00000000:01:00.0.\n"
LOST = (
    15,
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
)

NVIDIA_SMI = """#!/bin/sh
# Answers from the table $SMI/gpus; a file query, pl or pm beside it, of an exit status and a text, answers instead
echo "$*" >>"$SMI/calls"
[ ! -e "$SMI/slow" ] || sleep.real 30
id='' do='' value=''
while [ $# -gt 0 ]; do
  case $1 in
    -i) id=$2; shift ;;
    -pl) do=pl value=$2; shift ;;
    -pm) do=pm value=Enabled; shift ;;
    --query-gpu=*) do=query value=${1#*=} ;;
  esac
  shift
done
if [ -e "$SMI/$do" ] && { [ -z "$id" ] || [ $do != query ]; }; then { read -r status; cat; exit "$status"; } <"$SMI/$do"; fi
case $do in
  query) awk -F'|' -v id="$id" -v fields="$value" '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; n = split(fields, want, ","); next }
    id == "" || $column["uuid"] == id { for (i = 1; i <= n; i++) printf "%s%s", $column[want[i]], i < n ? ", " : "\\n" }' "$SMI/gpus" ;;
  *) awk -F'|' -v OFS='|' -v id="$id" -v value="$value" -v column="$([ $do = pl ] && echo 4 || echo 9)" '
    NR > 1 && $2 == id { $column = column == 4 ? value ".00" : value } { print }' "$SMI/gpus" >"$SMI/new" && mv "$SMI/new" "$SMI/gpus"
    echo "All done." ;;
esac
"""
SLEEP = """#!/bin/sh
echo "$1" >>"$SMI/naps"
next=$(ls "$SMI/next" | head -n 1)
if [ -z "$next" ]; then kill -TERM $PPID; exit; fi
. "$SMI/next/$next"
rm "$SMI/next/$next"
"""


@dataclasses.dataclass(frozen=True)
class Run:
    status: int
    rounds: list[Row]
    lines: list[str]  # those for people
    calls: list[str]
    naps: list[str]

    @property
    def changes(self) -> list[str]:
        return [call for call in self.calls if "-pl" in call or "-pm" in call]

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.lines if line.startswith("warning: ")]

    def states(self) -> list[str]:
        return [one["state"] for one in self.rounds]


class Node:
    """A machine with GPUs and a container that sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.smi, self.run = folder, folder / "bin", folder / "smi", folder / "run"
        for one in (self.bin, self.smi, self.run, self.smi / "next"):
            one.mkdir()
        (folder / "program").write_text(SCRIPT)
        (folder / "limits").write_text(TABLE)
        self._program("nvidia-smi", NVIDIA_SMI)
        self._program("sleep", SLEEP)
        (self.bin / "sleep.real").symlink_to(str(shutil.which("sleep")))
        self.gpus(RTX_3090)

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def gpus(self, *rows: str) -> None:
        lines = ["|".join(COLUMNS), *(f"{number}|GPU-{number}|{row}" for number, row in enumerate(rows))]
        (self.smi / "gpus").write_text("\n".join(lines) + "\n")

    def answers(self, kind: str, said: tuple[int, str]) -> None:
        """From now on nvidia-smi says this to ``query``, ``pl`` or ``pm``."""
        (self.smi / kind).write_text(f"{said[0]}\n{said[1]}")

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin", "SMI": str(self.smi), "TABLE": str(self.folder / "limits"), "STATE_DIR": str(self.run),
            "NODE_NAME": "gpu-a1", **more,
        }  # fmt: skip

    def play(self, *between: str, shell: str = "sh", **environment: str) -> Run:
        """One round, and one more after each of ``between``: shell commands of what happens meanwhile."""
        for number, commands in enumerate(between):
            (self.smi / "next" / f"{number:02d}").write_text(f"cd {self.smi}\n{commands}\n")
        done = subprocess.run(
            [shell, str(self.folder / "program")],
            env=self.environment(**environment), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        lines = done.stdout.splitlines()
        texts = {
            name: (self.smi / name).read_text().splitlines() if (self.smi / name).exists() else [] for name in ("calls", "naps")
        }
        rounds = [json.loads(line) for line in lines if line.startswith("{")]
        return Run(done.returncode, rounds, [line for line in lines if line[0] != "{"], **texts)

    def ready(self) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", str(self.folder / "program"), "ready"], env=self.environment(), capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.strip()

    def begin(self, **environment: str) -> subprocess.Popen[str]:
        """With the real sleep."""
        (self.bin / "sleep").unlink()
        return subprocess.Popen(
            ["sh", str(self.folder / "program")], env=self.environment(**environment), stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("shell", [name for name in ("dash", "bash") if shutil.which(name)])
def test_S4_14_S4_16_the_limit_is_set_and_reported_with_the_utilization(node: Node, shell: str) -> None:
    run = node.play("", shell=shell)
    assert run.status == 0
    assert run.changes == ["-i GPU-0 -pm 1", "-i GPU-0 -pl 300"]
    assert run.naps == ["1800", "1800"]
    first, second = run.rounds
    assert (first["node"], first["state"], first["message"]) == ("gpu-a1", "applied", "every listed GPU has its limit")
    assert first["gpus"] == [
        {
            "index": 0, "uuid": "GPU-0", "model": "NVIDIA GeForce RTX 3090", "state": "applied", "change": "set", "limit_watts": 300.0,
            "wanted_watts": 300, "min_watts": 100.0, "max_watts": 350.0, "draw_watts": 174.4, "utilization_percent": 87,
            "persistence_mode": "Enabled",
        }
    ]  # fmt: skip
    assert second["gpus"] == [{**first["gpus"][0], "change": "none"}]
    assert "GPU 0 (NVIDIA GeForce RTX 3090): power limit set: 350 W -> 300 W" in run.lines
    assert node.ready() == (0, "applied: every listed GPU has its limit")


def test_S4_15_drift_is_corrected_and_named_so(node: Node) -> None:
    run = node.play("sed -i 's/|300.00|/|350.00|/' gpus", "")
    assert [one["gpus"][0]["change"] for one in run.rounds] == ["set", "drift_corrected", "none"]
    assert run.changes.count("-i GPU-0 -pl 300") == 2
    assert "GPU 0 (NVIDIA GeForce RTX 3090): power limit set again after it drifted: 350 W -> 300 W" in run.lines


def test_a_limit_that_is_right_is_left_alone(node: Node) -> None:
    node.gpus(RTX_3090.replace("350.00|100.00", "299.99|100.00").replace("Disabled", "Enabled"))
    run = node.play("")
    assert (run.states(), run.changes) == (["applied", "applied"], [])


def test_S4_03_gpus_of_different_models_get_their_own_limits(node: Node) -> None:
    node.gpus(RTX_3090, T4, "NVIDIA L4|72.00|40.00|72.00|16.10|3|Enabled")
    run = node.play("")
    assert [(one["model"], one["state"], one["limit_watts"]) for one in run.rounds[1]["gpus"]] == [
        ("NVIDIA GeForce RTX 3090", "applied", 300), ("Tesla T4", "applied", 65), ("NVIDIA L4", "unlisted", 72),
    ]  # fmt: skip
    assert run.states() == ["applied", "applied"]
    assert run.warnings == ["warning: GPU 2 (NVIDIA L4): no power limit is listed for this model; its limit stays as it is"]
    assert not [call for call in run.changes if "GPU-2" in call]


def test_the_name_that_older_drivers_give_is_the_same_model(node: Node) -> None:
    node.gpus(RTX_3090.removeprefix("NVIDIA "))
    assert node.play().rounds[0]["gpus"][0]["limit_watts"] == 300


def test_a_node_without_a_listed_model_is_not_ready_and_says_so(node: Node) -> None:
    node.gpus("NVIDIA L4|72.00|40.00|72.00|16.10|3|Enabled")
    run = node.play()
    assert (run.states(), run.changes) == (["unlisted"], [])
    assert node.ready() == (1, "unlisted: no power limit is listed for the models of this node")


@pytest.mark.parametrize("watts", ["90", "400"])
def test_N_01_outside_of_the_cards_range_is_a_warning_with_the_range(node: Node, watts: str) -> None:
    (node.folder / "limits").write_text(f"{watts} GeForce RTX 3090\n")
    run = node.play("", "")
    assert (run.status, run.states()) == (0, ["out_of_range"] * 3)
    assert run.changes == ["-i GPU-0 -pm 1"]  # it is not tried
    assert run.warnings == [
        f"warning: GPU 0 (NVIDIA GeForce RTX 3090): {watts} W are outside of what this card accepts, 100.00 to 350.00 W; its limit stays at "
        "350.00 W"
    ]
    assert node.ready()[0] == 1 and node.ready()[1].startswith("out_of_range: GPU 0 ")


def test_a_range_that_only_the_driver_knows_is_a_failure_with_its_words(node: Node) -> None:
    node.gpus(RTX_3090.replace("|100.00|350.00|", "|[N/A]|[N/A]|"))
    node.answers("pl", OUT_OF_RANGE)
    run = node.play("", "")
    assert (run.status, run.states()) == (0, ["failed"] * 3)
    assert "should be between 100.00 W and 250.00 W" in run.rounds[0]["message"] and len(run.warnings) == 1
    assert (run.rounds[0]["gpus"][0]["min_watts"], run.rounds[0]["gpus"][0]["max_watts"]) == (None, None)


@pytest.mark.parametrize("warning", ["", PERSISTENCE_WARNING])
def test_a_machine_that_permits_no_limits_is_tried_once(node: Node, warning: str) -> None:
    """As most rented virtual machines."""
    node.answers("pl", (4, warning + NO_PERMISSION[1]))
    node.answers("pm", (4, "Unable to set persistence mode for GPU 00000000:01:00.0: Insufficient Permissions\n"))
    run = node.play("", "", "")
    assert (run.status, run.states()) == (0, ["not_permitted"] * 4)
    assert run.changes == ["-i GPU-0 -pm 1", "-i GPU-0 -pl 300"]
    assert [
        line for line in run.warnings if "does not permit to change power limits" in line and "Insufficient Permissions" in line
    ]
    assert len(run.warnings) == 2  # of the limit and of persistence mode
    assert node.ready()[1].startswith("not_permitted: GPU 0 (NVIDIA GeForce RTX 3090): this machine does not permit")


def test_a_machine_that_permits_it_after_all_is_applied(node: Node) -> None:
    """Its host set the limit meanwhile."""
    node.answers("pl", NO_PERMISSION)
    run = node.play("sed -i 's/|350.00|100/|300.00|100/' gpus")
    assert run.states() == ["not_permitted", "applied"]


def test_a_driver_that_only_warns_and_moves_on_is_not_taken_for_success(node: Node) -> None:
    node.answers("pl", NOT_SUPPORTED)
    run = node.play("", "")
    assert (run.states(), run.changes.count("-i GPU-0 -pl 300")) == (["not_supported"] * 3, 1)


def test_success_without_effect_is_a_failure(node: Node) -> None:
    node.answers("pl", (0, "All done.\n"))
    run = node.play("rm pl")
    assert run.states() == ["failed", "applied"]
    assert run.rounds[0]["message"].endswith("nvidia-smi reports success and the limit is still 350.00 W")


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]"])
def test_a_gpu_without_a_power_limit_is_not_supported(node: Node, word: str) -> None:
    node.gpus(RTX_3090.replace("350.00|100.00|350.00|174.40|87|Disabled", f"{word}|{word}|{word}|{word}|{word}|{word}"))
    run = node.play("")
    assert (run.status, run.states(), run.changes) == (0, ["not_supported"] * 2, [])
    shown = run.rounds[0]["gpus"][0]
    assert {shown[key] for key in ("limit_watts", "min_watts", "max_watts", "draw_watts", "utilization_percent")} == {None}


@pytest.mark.parametrize("said", [NO_DRIVER, NO_LIBRARY], ids=["no driver", "no library"])
def test_S4_17_without_a_driver_it_waits_and_goes_on_when_it_is_there(node: Node, said: tuple[int, str]) -> None:
    node.answers("query", said)
    run = node.play("", "", "rm query")
    assert (run.status, run.states()) == (0, ["waiting", "applied"])  # one line while the reason stays the same
    assert run.naps == ["10", "10", "10", "1800"]
    assert run.rounds[0]["message"] == f"nvidia-smi ended with status {said[0]}: {said[1].strip()}"
    assert run.rounds[0]["gpus"] == []


def test_a_container_without_nvidia_smi_waits_and_is_not_ready(node: Node) -> None:
    (node.bin / "nvidia-smi").unlink()
    run = node.play("")
    assert (run.status, run.states(), run.naps) == (0, ["waiting"], ["10", "10"])
    assert node.ready() == (1, "waiting: nvidia-smi is not in this container; the runtime class nvidia puts it there")


def test_it_repeats_every_interval_what_it_waits_for(node: Node) -> None:
    node.answers("query", NO_DRIVER)
    assert len(node.play(*[""] * 6, INTERVAL_SECONDS="30").rounds) == 2


def test_a_driver_without_a_gpu_waits(node: Node) -> None:
    node.answers("query", (6, "No devices were found\n"))
    run = node.play()
    assert (run.states(), run.rounds[0]["message"]) == (["waiting"], "nvidia-smi ended with status 6: No devices were found")


def test_a_driver_that_is_lost_later_is_waited_for(node: Node) -> None:
    run = node.play("printf '9\\nno driver\\n' >query", "rm query")
    assert (run.states(), run.naps) == (["applied", "waiting", "applied"], ["1800", "10", "1800"])


def test_a_lost_gpu_does_not_keep_the_others_from_their_limits(node: Node) -> None:
    row = "0, GPU-0, 350.00, 100.00, 350.00, 174.40, 87, Enabled, NVIDIA GeForce RTX 3090\n"
    node.answers("query", (LOST[0], row + LOST[1]))
    run = node.play("rm query")
    assert run.changes[0] == "-i GPU-0 -pl 300"
    assert run.states() == ["failed", "applied"] and "GPU is lost" in run.rounds[0]["message"]


def test_a_slow_nvidia_smi_is_given_up_and_asked_again(node: Node) -> None:
    (node.smi / "slow").touch()
    run = node.play("rm slow", TIMEOUT_SECONDS="0.3")
    assert run.states() == ["waiting", "applied"]
    assert run.rounds[0]["message"] == "nvidia-smi did not answer within 0.3 s"


def test_S4_14_persistence_mode_may_be_left_alone(node: Node) -> None:
    run = node.play(PERSISTENCE_MODE="0")
    assert run.changes == ["-i GPU-0 -pl 300"] and run.rounds[0]["gpus"][0]["persistence_mode"] == "Disabled"


def test_a_table_that_changes_is_read_in_the_next_round(node: Node) -> None:
    """The kubelet updates the files of a ConfigMap."""
    run = node.play("echo '280 GeForce RTX 3090' >../limits")
    assert [one["gpus"][0]["limit_watts"] for one in run.rounds] == [300, 280]


def test_quotes_and_odd_characters_of_a_driver_leave_the_line_readable(node: Node) -> None:
    node.answers("query", (255, 'Failed "to" \\initialize\tNVML: \x1b[31mUnknown Error\xa0\n'))
    assert node.play().rounds[0]["message"] == "nvidia-smi ended with status 255: Failed to initialize NVML: [31mUnknown Error"


def test_before_the_first_round_it_is_not_ready(node: Node) -> None:
    assert node.ready() == (1, "waiting: the first round has not ended")


@pytest.mark.parametrize("slow", [False, True], ids=["between rounds", "while nvidia-smi hangs"])
def test_sigterm_ends_it_at_once(node: Node, slow: bool) -> None:
    if slow:
        (node.smi / "slow").touch()
    with node.begin() as program:
        end = time.monotonic() + 60
        while not ((node.smi / "calls").exists() if slow else (node.run / "state").exists()):
            assert time.monotonic() < end and program.poll() is None
            time.sleep(0.02)
        program.send_signal(signal.SIGTERM)
        assert program.wait(2) == 0
    end = time.monotonic() + 60
    while [path for path in Path("/proc").glob("[0-9]*/environ") if _is_of(path, node)]:
        assert time.monotonic() < end, "a process of it is left"
        time.sleep(0.02)


def _is_of(environ: Path, node: Node) -> bool:
    try:
        return f"SMI={node.smi}".encode() in environ.read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.skipif(outsiders.shellcheck() is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_against_it(record_property: t.Callable[[str, object], None]) -> None:
    assert outsiders.shell_faults(SCRIPT, "sh") == ""
    record_property("checked", ("scripts by shellcheck", 1))


def test_it_needs_no_program_that_the_image_lacks() -> None:
    """Debian and Ubuntu call these essential, and Red Hat's base images have them."""
    words = {
        word
        for line in SCRIPT.splitlines()
        if not line.startswith("#")
        for word in line.replace("$(", " ").replace("|", " ").split()
    }
    assert not words & {"awk", "jq", "python3", "perl", "curl", "bc", "hostname", "flock"}
    assert os.linesep == "\n" and "\t" not in SCRIPT
