# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of EC2's API that lists instances, in a process of its own: ``python -m tests.bench.ec2 LATENCY INSTANCES``.

Every call takes ``LATENCY`` seconds. DescribeInstances is answered in pages of at most a thousand, as EC2 does. It prints its address, and
serves until its input ends. ``GET /calls``, which is not counted, answers how many calls there were.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
import typing as t
import urllib.parse

_MOST = 1000  # instances of a page
_SPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_INSTANCE = (
    "<item><reservationId>r-{number:017x}</reservationId><ownerId>000000000000</ownerId><groupSet/><instancesSet><item>"
    "<instanceId>i-{number:017x}</instanceId><imageId>ami-00000000000000001</imageId><instanceState><code>16</code><name>running</name>"
    "</instanceState><privateDnsName>ip-{dashed}.ec2.internal</privateDnsName><dnsName>ec2-{dashed}.compute-1.amazonaws.com</dnsName>"
    "<instanceType>g5.xlarge</instanceType><launchTime>2026-01-01T00:00:00.000Z</launchTime><placement><availabilityZone>us-east-1a"
    "</availabilityZone><tenancy>default</tenancy></placement><subnetId>subnet-00000000000000001</subnetId><vpcId>vpc-00000000000000001"
    "</vpcId><privateIpAddress>{address}</privateIpAddress><ipAddress>{address}</ipAddress><architecture>x86_64</architecture>"
    "<rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName><tagSet><item><key>Name</key>"
    "<value>running-{number:04d}</value></item></tagSet><hypervisor>xen</hypervisor></item></instancesSet></item>"
)


def answer(form: t.Mapping[str, list[str]], instances: int) -> tuple[int, str]:
    """Status and XML of a call with this form."""
    action = form.get("Action", [""])[0]
    if action != "DescribeInstances":
        error = f"<Code>InvalidAction</Code><Message>The action {action} is not valid for this web service.</Message>"
        return 400, f"<Response><Errors><Error>{error}</Error></Errors><RequestID>1</RequestID></Response>"
    start = int(form.get("NextToken", ["0"])[0])
    end = min(instances, start + min(_MOST, int(form.get("MaxResults", [str(_MOST)])[0])))
    items = "".join(map(_item, range(start, end)))
    following = f"<nextToken>{end}</nextToken>" if end < instances else ""
    content = f"<requestId>1</requestId><reservationSet>{items}</reservationSet>{following}"
    return 200, f'<DescribeInstancesResponse xmlns="{_SPACE}">{content}</DescribeInstancesResponse>'


def _item(number: int) -> str:
    address = f"198.18.{number // 250}.{number % 250 + 1}"
    return _INSTANCE.format(number=number, address=address, dashed=address.replace(".", "-"))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    calls = 0


def _handler(latency: float, instances: int) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server: _Server

        def do_GET(self) -> None:
            self._send(200, json.dumps({"calls": self.server.calls}), "application/json")

        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers.get("content-length") or 0)).decode())
            self.server.calls += 1
            time.sleep(latency)
            self._send(*answer(form, instances), "text/xml")

        def _send(self, status: int, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: t.Any) -> None:
            """Nobody reads it."""

    return Handler


def main() -> None:
    server = _Server(("127.0.0.1", 0), _handler(float(sys.argv[1]), int(sys.argv[2])))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
