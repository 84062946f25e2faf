# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's API: which answers its pages and official clients have. Of an instance most fields may be null, and a caller may choose columns;
status 200 with ``"success": false`` is a refusal, too."""

from __future__ import annotations

import re

from .shapes import EMPTY, Media, Rows, Shape, Table, partial

COST = {"gpuCostPerHour": float, "diskHour": float, "slaPremiumPerHour": float, "totalHour": float}
PROMISE: dict[str, Shape] = {  # of reliability; what a promise costs is slaPremiumPerHour
    "target_reliability": (float, None),
    "expected_reliability": (float, None),
    "sla_r_claim": (float, None),
    "sla_sigma_x": (float, None),
    "sla_broker_rate": (float, None),
}
OFFER: dict[str, Shape] = {
    "id": int,
    "machine_id": int,
    "host_id": int,
    "gpu_name": str,
    "num_gpus": int,
    "gpu_frac": float,
    "gpu_ram": float,
    "gpu_total_ram": float,
    "cpu_ram": float,
    "cpu_cores": (float, None),
    "cpu_cores_effective": (float, None),
    "disk_space": float,
    "disk_bw": float,
    "disk_name": (str, None),
    "inet_down": float,
    "inet_up": float,
    "inet_down_cost": float,
    "inet_up_cost": float,
    "storage_cost": float,
    "dph_base": float,
    "dph_total": float,
    "min_bid": float,
    "is_bid": bool,
    "search": COST,
    "instance": COST,
    "reliability": float,
    "reliability2": float,
    **PROMISE,
    "verification": {"verified", "unverified", "deverified"},
    "hosting_type": (int, None),
    "geolocation": (re.compile(r".*, [A-Z]{2}"), None),
    "country_code?": (re.compile(r"[A-Z]{2}"), None),
    "cuda_max_good": float,
    "driver_version": str,
    "driver_vers": int,
    "compute_cap": int,
    "direct_port_count": int,
    "static_ip": bool,
    "public_ipaddr": (str, None),
    "vms_enabled": bool,
    "start_date": float,
    "end_date": (float, None),
    "duration": (float, None),
    "rentable": bool,
    "rented": bool,
    "external": (bool, None),
    "verified?": bool,
    "dlperf": (float, None),
    "dlperf_per_dphtotal": (float, None),
    "score": (float, None),
    "flops_per_dphtotal": (float, None),
    "discount_rate": (float, None),
    "discounted_hourly": (float, None),
    "discounted_dph_total": (float, None),
}
STATUS = {"created", "loading", "running", "rebooting", "stopped", "frozen", "exited", "unknown", "offline", "scheduling"}
BINDING = {"HostIp": str, "HostPort": re.compile(r"\d{1,5}")}
INSTANCE: dict[str, Shape] = {
    "id": int,
    "machine_id": (int, None),
    "host_id": (int, None),
    "label": (str, None),
    "actual_status": (STATUS, None),
    "intended_status": (STATUS, None),
    "cur_state": (STATUS, None),
    "next_state": (STATUS, None),
    "status_msg": (str, None),
    "image_uuid": (str, None),
    "image_runtype": (str, None),
    "extra_env": (None, [[str]]),
    "onstart": (str, None),
    "ssh_host": (str, None),
    "ssh_port": (int, None),
    "public_ipaddr": (str, None),
    "local_ipaddrs": (str, None),
    "ports": (None, {"*": (None, [BINDING])}),
    "direct_port_start": (int, None),
    "direct_port_end": (int, None),
    "num_gpus": (int, None),
    "gpu_name": (str, None),
    "gpu_ram": (float, None),
    "gpu_util": (float, None),
    "gpu_temp": (float, None),
    "cpu_cores_effective": (float, None),
    "cpu_ram": (float, None),
    "disk_space": (float, None),
    "disk_usage": (float, None),
    "dph_base": (float, None),
    "dph_total": (float, None),
    "min_bid": (float, None),
    "is_bid": (bool, None),
    "start_date": (float, None),
    "end_date": (float, None),
    "duration": (float, None),
    "uptime_mins": (float, None),
    "geolocation": (str, None),
    "country_code": (str, None),
    "verification": (str, None),
    "reliability2": (float, None),
    **PROMISE,
    "search": COST,
    "instance": COST,
    "static_ip": (bool, None),
    "template_id": (int, None),
    "template_hash_id": (str, None),
    "volume_info": object,
    "webpage": (str, None),
}
USER = {
    "id": int,
    "email": str,
    "username": str,
    "balance": float,
    "credit": float,
    "can_pay": bool,
    "has_billing": bool,
    "balance_threshold": float,
    "ssh_key": (str, None),
    "sid": str,
    "key_id?": int,
}
KEY = {"id": int, "public_key": str}
ANSWER = {"success": bool, "error?": str, "msg?": str}
PAGE = {
    "success": bool,
    "count": int,
    "total": int,
    "results": [{"type": str, "source": str, "amount": float}],
    "next_token": (str, None),
}
LIST = {
    "success": bool,
    "instances_found": int,
    "total_instances": int,
    "label_counts": {"*": int},
    "next_token": (str, None),
}
REFUSAL = {"success": bool, "error": str, "msg": str}
SECOND_FACTOR = {"success": bool, "msg": re.compile("Two Factor Authentication.*")}
FREQUENT = (Media("text/plain"), {"detail": str}, REFUSAL)

ROWS: Rows = {
    "POST /api/v0/bundles/": {200: {"offers": [OFFER]}},
    "PUT /api/v0/search/asks/": {200: {"offers": [partial(OFFER)]}},
    "GET /api/v0/gpu_names/unique/": {200: {"gpu_names": [str]}},
    "PUT /api/v0/asks/{id}/": {
        200: {"success": bool, "new_contract": int, "instance_api_key?": str},
        500: {**REFUSAL, "new_contract": int},  # a bid too low: its status is not known, so tests have it with several
    },
    "GET /api/v0/instances/{id}/": {200: {"instances": (None, INSTANCE)}},
    "PUT /api/v0/instances/{id}/": {200: ANSWER},
    "DELETE /api/v0/instances/{id}/": {200: ANSWER},
    "GET /api/v1/instances/": {200: {**LIST, "instances": [INSTANCE]}},
    "GET /api/v1/instances/ select_cols=[^*&]+(&|$)": {200: {**LIST, "instances": [partial(INSTANCE)]}},
    "GET /api/v0/instances/filters/": {200: {"success": bool}},
    "PUT /api/v0/instances/": {200: ANSWER},
    "DELETE /api/v0/instances/": {200: ANSWER},
    "PUT /api/v0/instances/bid_price/{id}/": {200: ANSWER},
    "PUT /api/v0/instances/reboot/{id}/": {200: ANSWER},
    "PUT /api/v0/instances/recycle/{id}/": {200: ANSWER},
    "PUT /api/v0/instances/request_logs/{id}/": {200: {"success": bool, "result_url": re.compile(r"https?://.+")}},
    # a store of files, with the errors of such
    "GET /logs/{token}.log": {
        200: (Media("text/plain"), EMPTY),
        400: Media("application/xml"),
        403: Media("application/xml"),
        404: Media("application/xml"),
    },
    "GET /api/v0/users/current/": {200: USER},
    "GET /api/v0/users/current": {200: USER},
    "GET /api/v0/ssh/": {200: [KEY]},
    "POST /api/v0/ssh/": {200: {"success": bool, "key": KEY}},
    "PUT /api/v0/ssh/{id}/": {200: ANSWER},
    "DELETE /api/v0/ssh/{id}/": {200: ANSWER},
    "GET /api/v0/instances/{id}/ssh/": {200: {"success": bool, "ssh_keys": [KEY]}},
    "POST /api/v0/instances/{id}/ssh/": {200: ANSWER},
    "DELETE /api/v0/instances/{id}/ssh/{key}/": {200: ANSWER},
    "GET /api/v0/secrets/": {200: {"success": bool, "secrets": {"*": str}}},
    **{f"{method} /api/v0/secrets/": {200: ANSWER} for method in ("POST", "PUT", "DELETE")},
    "GET /api/v0/charges/": {200: PAGE},
    "GET /api/v1/invoices/": {200: PAGE},
}

VAST = Table(
    "vast",
    ROWS,
    {
        **dict.fromkeys((400, 402, 403, 404, 410), REFUSAL),
        401: (REFUSAL, SECOND_FACTOR),
        429: FREQUENT,
    },
)
