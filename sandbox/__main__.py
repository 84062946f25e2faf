# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m sandbox up --env-file FILE`` starts the sandbox; Ctrl-C or SIGTERM ends it."""

from __future__ import annotations

import argparse
import sys

from . import scenario as scenarios
from .clock import FASTEST
from .running import EndSignals
from .server import Served


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    asked_to_end = EndSignals()
    try:
        scenario = scenarios.load(options.scenario)
        served = Served(
            scenario,
            speed=options.speed,
            behind=options.behind,
            seed=options.seed,
            kubeconfig=options.kubeconfig,
            state_dir=options.state_dir,
            env_file=options.env_file,
        )
    except (ValueError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2
    if options.kubeconfig and options.speed != 1:
        print(
            f"sandbox: warning: your cluster does not live {options.speed:g} times as fast; use --speed 1 with it", file=sys.stderr
        )
    print(f"scenario {scenario.name}, {options.speed:g} seconds of the world per second, seed {options.seed}")
    for name, url in served.table():
        print(f"  {name:20} {url}")
    print(f"environment: {options.env_file}    (Ctrl-C ends it)", flush=True)
    asked_to_end.wait()
    served.stop()
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _speed(text: str) -> float:
    value = _number(text)
    if not 0 < value <= FASTEST:
        raise argparse.ArgumentTypeError(f"should be above 0 and at most {FASTEST:.0f}")
    return value


def _behind(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 366 * 86400:
        raise argparse.ArgumentTypeError("should be between 0 and a year")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox", description="A world in a box: clouds, a tailnet and Kubernetes on loopback."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it and stay until Ctrl-C or SIGTERM")
    up.add_argument("--env-file", required=True, metavar="FILE", help="written when all is up: NAME=value lines for any shell")
    up.add_argument("--speed", type=_speed, default=1.0, metavar="N", help="world seconds per second (default 1)")
    up.add_argument(
        "--behind", type=_behind, default=0.0, metavar="SECONDS", help="the world begins that long before the present (default 0)"
    )
    up.add_argument(
        "--scenario", default="default", metavar="FILE", help=f"a YAML or JSON file, or one of {', '.join(scenarios.names())}"
    )
    up.add_argument("--seed", type=int, default=0, metavar="N", help="makes chance repeatable (default 0)")
    up.add_argument("--kubeconfig", metavar="FILE", help="machines join this cluster; no Kubernetes is started")
    up.add_argument("--state-dir", metavar="DIR", help="keeps its files there (default: a temporary folder)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
