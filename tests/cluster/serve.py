# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line around a Plane, for running playbooks against it by hand."""

from __future__ import annotations

import argparse
import pathlib
import sys

from sandbox.running import EndSignals
from tests.build import CannotBuild, build

from .plane import Plane, PlaneFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.plane")
    up = parser.add_subparsers(dest="command", required=True).add_parser("up", help="serve until Ctrl-C or SIGTERM")
    up.add_argument("--env-file", type=pathlib.Path, required=True, help="written once the plane is ready: NAME=value lines")
    up.add_argument("--folder", type=pathlib.Path, help="where data and logs go and stay; a temporary folder by default")
    up.add_argument("--node-grace", type=int, default=86400, help="seconds until a silent kubelet's node is not Ready")
    up.add_argument("--nodes", default="", help="hollow nodes to start, NAME or NAME:GPUS, separated by commas")
    chosen = parser.parse_args()

    asked_to_end = EndSignals()
    folder = chosen.folder.resolve() if chosen.folder else None
    if folder and (folder / "etcd").exists():
        print(f"{folder} holds an earlier plane's data; name another folder.", file=sys.stderr)
        return 2
    try:
        with Plane(build("plane"), node_grace=chosen.node_grace, folder=folder) as plane:
            for node in filter(None, chosen.nodes.split(",")):
                name, _, gpus = node.partition(":")
                plane.kubemark(name, plane.bootstrap_token(), gpus=int(gpus or 0))
            names = {
                "KUBECONFIG": plane.kubeconfig,
                "TGP_PLANE_SERVER": plane.server,
                "TGP_PLANE_CA": plane.folder / "ca.crt",
                "TGP_PLANE_FOLDER": plane.folder,
            }
            chosen.env_file.parent.mkdir(parents=True, exist_ok=True)
            chosen.env_file.write_text("".join(f"{name}={value}\n" for name, value in names.items()))
            print(f"ready: {plane.server}, KUBECONFIG={plane.kubeconfig}", flush=True)
            asked_to_end.wait()
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        return problem.status
    except PlaneFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0
