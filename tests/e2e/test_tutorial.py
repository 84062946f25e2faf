# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/tutorial/first_node.md from an empty folder: each of its commands runs, and prints what stands there.

Names, ports, ids, times and costs differ from run to run; of a line that stands in the page, everything else must be in the output.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.running import clean_environment
from tests.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = blocks((ROOT / "docs" / "tutorial" / "first_node.md").read_text(encoding="utf-8"))
SHELL = [block for block in BLOCKS if block.language == "sh" and not block.illustration]
# cells whose content differs: names of machines, ids, costs, ports, moments, durations, seconds, rules of tables
_DIFFERS = re.compile(
    r"tgp-\w+-\w+-\w+(\.\S+)?|\b[0-9a-f]{16,}\b|(?<=127\.0\.0\.1:)\d+"
    r"|\$?\d+\.\d{3,}|\d{4}-\d\d-\d\dT\S+|\b(\d+[dhms]){1,3}\b|\b\d{3,}(?= s\b)|-{3,}"
)


def words(line: str) -> str:
    """A line of output as it is compared."""
    return " ".join(_DIFFERS.sub("…", line).split())


def script() -> str:
    """The commands of the page, with the file that it has the reader save; each block's output is followed by a line with its number."""
    lines = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in BLOCKS:
        if saved := re.match(r"# ([\w.]+)\n", block.text) if block.language == "yaml" else None:
            lines.append(f"printf %s {shlex.quote(block.text)} > {saved[1]}")
        elif block in SHELL:
            lines += [block.text, f"echo; echo '<<{block.line}>>'"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Line of a shell block → what it printed."""
    home = tmp_path_factory.mktemp("home")
    collections = home / ".ansible" / "collections" / "ansible_collections" / "tgp"
    collections.mkdir(parents=True)
    (collections / "gpu").symlink_to(ROOT)
    folder = home / "gpu"
    folder.mkdir()
    kept = clean_environment("KUBECONFIG", "PYTHONPATH")
    environment = {**kept, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}", "COLUMNS": "400"}
    run = subprocess.run(
        ["bash", "-c", script()], cwd=folder, env=environment, capture_output=True, text=True, timeout=540, check=False
    )
    assert run.returncode == 0, f"{run.stdout[-6000:]}\n{run.stderr[-3000:]}"
    assert not (folder / "sandbox.env").exists(), "the sandbox is still there"
    parts = re.split(r"\n<<(\d+)>>\n", run.stdout)
    return {int(line): text for text, line in zip(parts[::2], parts[1::2], strict=False)}


def test_every_command_of_the_tutorial_runs(printed: dict[int, str]) -> None:
    assert sorted(printed) == [block.line for block in SHELL]


def shown() -> list[tuple[Block, Block]]:
    """Shell blocks that are run, each with the output that the page shows below it."""
    pairs = zip(BLOCKS, BLOCKS[1:], strict=False)
    return [(one, following) for one, following in pairs if one in SHELL and following.language == "text"]


@pytest.mark.parametrize(("command", "output"), shown(), ids=lambda block: str(block.line))
def test_a_command_prints_what_the_page_shows(printed: dict[int, str], command: Block, output: Block) -> None:
    found = {words(line) for line in printed[command.line].splitlines()}
    assert [line for line in map(words, output.text.splitlines()) if line not in found] == []
