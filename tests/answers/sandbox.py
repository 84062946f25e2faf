# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.answers.sandbox FILE up …``: ``python -m sandbox up …``, with every answer of its emulators checked. The file gets a line
for each fault, once, as soon as the answer is given; it is empty from the start on, so that a file that is missing shows that nothing
was checked.
"""

from __future__ import annotations

import sys
import threading
import typing as t
from pathlib import Path

import flask

from sandbox.__main__ import main

from . import check


class Record:
    """Listens to the emulators of this process."""

    def __init__(self, file: Path) -> None:
        self._file, self._known, self._lock = file, set[str](), threading.Lock()  # emulators answer in threads
        file.write_text("")

    def listen(self, emulator: flask.Flask, response: flask.Response, **_more: t.Any) -> None:
        """The signal of a finished request."""
        _service, found = check(emulator, response) or ("", [])
        with self._lock, self._file.open("a") as file:
            for fault in found:
                if fault not in self._known:
                    self._known.add(fault)
                    print(fault, file=file)


def watched(file: Path, arguments: list[str]) -> int:
    """A sandbox with these arguments, until it is told to end."""
    record = Record(file)  # a signal keeps no strong reference to what listens
    flask.request_finished.connect(record.listen)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(watched(Path(sys.argv[1]), sys.argv[2:]))
