# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes that never outlive the test run, and ports for them."""

from __future__ import annotations

import abc
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import typing as t

# Its standard input closes when the test run ends, even by SIGKILL; then it ends its process group, in which all the others are.
_GUARD = "import os, signal, sys; sys.stdin.read(); os.killpg(0, signal.SIGKILL)"


def free_ports(count: int) -> list[int]:
    """Ports below the range from which the kernel serves outgoing connections: nobody else is given one between check and use."""
    held: list[socket.socket] = []
    for port in random.SystemRandom().sample(range(20000, 32000), 2000):
        if len(held) == count:
            break
        attempt = socket.socket()
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            attempt.close()
            continue
        held.append(attempt)
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Child:
    """One running program; its output goes to ``log``."""

    def __init__(self, name: str, argv: list[str], log: pathlib.Path, group: int) -> None:
        self.name = name
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent, process_group=group
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self, lines: int = 5) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout: float = 10) -> None:
        """End it as an operator would; by force after ``timeout`` seconds."""
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """As when the power fails."""
        if self.alive:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


class Family:
    """The children of one test run. ``close`` ends them, the youngest first."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen([sys.executable, "-c", _GUARD], stdin=subprocess.PIPE, process_group=0)
        self._children: list[Child] = []

    def start(self, name: str, argv: t.Sequence[str], log: pathlib.Path) -> Child:
        child = Child(name, list(argv), log, self._guard.pid)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self._children):
            child.stop()
        if self._guard.stdin:
            self._guard.stdin.close()
        self._guard.wait()


class Installation(abc.ABC):
    """Programs with a folder of their own, from ``__enter__`` to ``__exit__``; both are gone after it, and when the start fails.

    A folder that is given is made when absent, and kept.
    """

    def __init__(self, prefix: str, folder: pathlib.Path | None = None) -> None:
        self._prefix, self._given_folder = prefix, folder

    def __enter__(self) -> t.Self:
        self.folder = self._given_folder or pathlib.Path(tempfile.mkdtemp(prefix=self._prefix))  # short: sockets lie in it
        self.folder.mkdir(parents=True, exist_ok=True)
        self.family = Family()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def _start(self) -> None:
        """Start ``family``'s programs."""

    def close(self) -> None:
        self.family.close()
        if not self._given_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
