# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -I -S spawn.py FILE COMMAND ...``: runs a command and writes what it cost. It imports little: the peak memory of a process is never
less than what the one that started it had."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    began, started = time.time(), time.monotonic()
    pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
    _pid, status, used = os.wait4(pid, 0)
    cost = {
        "wall": time.monotonic() - started,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024 / 1e6,
        "began": began,
        "ended": time.time(),
        "status": os.waitstatus_to_exitcode(status),
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(cost, file)


if __name__ == "__main__":
    main()
