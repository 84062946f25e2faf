# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of README.md, in their order, by somebody who has installed the tarball into a folder of their own."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from sandbox.running import ROOT
from tests.release import build_tarball

from .box import NOTHING, Sandbox
from .shell_blocks import BlocksRun, ShellBlock, run_blocks, script, shell_blocks, user_environment

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def done(shared: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> tuple[BlocksRun, Path]:
    """The blocks of README.md have run on the sandbox; and the folder of their user."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "gpus"
    folder.mkdir()
    build_tarball(ROOT, folder)
    return run_blocks(shell_blocks(README), folder, user_environment(shared.environment, home)), folder


def test_every_command_works_in_order_from_the_tarball(done: tuple[BlocksRun, Path], shared: Sandbox) -> None:
    run, folder = done
    run.succeeded()
    assert "[ERROR]" not in run.out and "[DEPRECATION" not in run.out
    world = shared.world()
    rented = [one for one in world["machines"] if one["cloud"] != "webhook"]
    assert [(one["cloud"], one["ended"] is None) for one in rented] == [("lambda", False)], "one machine was rented and terminated"
    assert shared.left() == NOTHING
    installed = folder.parent / ".ansible" / "collections" / "ansible_collections" / "tgp" / "gpu"
    assert (folder / "requirements.txt").read_bytes() == (installed / "requirements.txt").read_bytes()
    assert (folder / "reference" / "rbac.yml").is_file() and (folder / "reference" / "systemd" / "tgp-gpu@.service").is_file()


def test_the_steps_say_what_readme_says_of_them(done: tuple[BlocksRun, Path], shared: Sandbox) -> None:
    run, _folder = done
    plays = re.findall(r"^localhost +: ok=\d+ +changed=(\d+) ", run.out, re.MULTILINE)
    assert len(plays) >= 14
    assert re.search(r"ServiceAccount +tgp-system +tgp-gpu +created", run.out), "the apply made the rights"
    assert "@pool_default_a10" in run.out, "the inventory has the machine"
    assert re.search(r"gone +Empty|gone +Manual", run.out)
    role = shared.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/tgp-gpu")
    assert {one["manager"] for one in role["metadata"]["managedFields"]} == {"tgp.gpu"}


def test_commands_of_an_installed_collection_name_no_path_of_it() -> None:
    for block in shell_blocks(README):
        assert not re.search(r"playbooks/|-f (?:files|schemas)/|-e tgp_documents=examples", block.text), block.place
        assert all(
            re.search(r"ansible-playbook tgp\.gpu\.\w+", line) for line in block.text.splitlines() if "ansible-playbook" in line
        )


def test_few_blocks_are_illustrations_and_each_says_why() -> None:
    blocks = shell_blocks(README)
    shown = [block for block in blocks if block.illustration]
    assert len(shown) == 1 < len(blocks) - 8
    assert all(block.illustration != "an illustration" for block in shown)


# ---- the reader of blocks

PAGE = """
# Page

```sh
echo one
```

<!-- illustration: needs an account -->
```bash
exit 3
```

```yaml
a: b
```

1. A list

   ```sh
   echo "two
   lines"
   ```

    echo four blanks

<!-- illustration -->
```sh
kubectl get nodes
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def short(blocks: t.Iterable[ShellBlock]) -> list[tuple[int, str, str]]:
    return [(block.line, block.text, block.illustration) for block in blocks]


def test_blocks_are_found_with_their_marks(page: Path) -> None:
    assert short(shell_blocks(page)) == [
        (5, "echo one", ""),
        (10, "exit 3", "needs an account"),
        (20, 'echo "two\nlines"', ""),
        (28, "kubectl get nodes", "an illustration"),
    ]


def test_the_first_failure_ends_the_run_and_is_placed(page: Path, tmp_path: Path) -> None:
    run = run_blocks(shell_blocks(page), tmp_path, {"PATH": "/usr/bin:/bin"})
    assert (
        run.succeeded().place == "page.md:20"
        and "two\nlines" in run.of("page.md:20")
        and "exit 3" not in script(shell_blocks(page))
    )
    page.write_text(PAGE.replace("echo one", "cd gone; echo never"))
    run = run_blocks(shell_blocks(page), tmp_path, {"PATH": "/usr/bin:/bin"})
    assert run.rc != 0 and run.place == "page.md:5" and "never" not in run.out
    with pytest.raises(AssertionError, match=r"page\.md:5 ended with"):
        run.succeeded()


def test_a_block_that_hangs_is_ended(page: Path, tmp_path: Path) -> None:
    page.write_text("```sh\nsleep 60\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2 did not end in 0\.2 s"):
        run_blocks(shell_blocks(page), tmp_path, {"PATH": "/usr/bin:/bin"}, 0.2)
