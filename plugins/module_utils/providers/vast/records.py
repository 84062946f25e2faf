# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's JSON read into our records: the only place that knows its words. Nearly every field may be null at some time."""

from __future__ import annotations

import math
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal

from ...core import redact
from ...core.http import Api, part
from ...model import Capability, Charge, Instance, InstanceState, Lane, Offer
from ...planner.offers.requirements import gibibytes, gigabytes, standard_region
from .gpu_names import memory_mib, model_of
from .regions import PLACES

BID = "-bid"
_CHARGED = "instance-"
_TRAFFIC = ("bwd", "bwu")  # downloads and uploads
_ROUNDED = Decimal("0.0005")  # an item of a bill has three digits after the point
MARKS = "TGP_MARKS"
_MONTH_HOURS = 30 * 24  # storage_cost is dollars per GB and month of 30 days
_BOOTING = frozenset({"created", "loading", "scheduling"})
_FAILED_WORDS = ("oci runtime create failed", "manifest unknown", "pull access denied", "no space left")
_STOPPED = "it was stopped by its owner, or the account has no money; its disk is billed"
_LATEST, _LONGEST = 32_503_680_000, 60 * 24 * 3650  # the year 3000; ten years in minutes: beyond that a number means something else
_EXACT, _ABSURD = Decimal("0.000001"), Decimal(10**9)
Row = dict[str, t.Any]


def storage_price(disk_gb: t.Any, storage_cost: t.Any) -> Decimal:
    """Dollars per hour for a disk; 0 where the cost is not reported."""
    size, cost = decimal(disk_gb), decimal(storage_cost)
    return _rounded(size * cost / _MONTH_HOURS) if size is not None and cost is not None else Decimal(0)


def _rounded(amount: Decimal) -> Decimal:
    """To a millionth of a dollar: its answers carry the dust of binary fractions."""
    return amount.quantize(_EXACT, ROUND_HALF_UP) if abs(amount) < _ABSURD else amount


def money(value: t.Any) -> Decimal | None:
    """Dollars out of a JSON number; None for anything else."""
    number = decimal(value)
    return None if number is None else _rounded(number)


def decimal(value: t.Any) -> Decimal | None:
    """A JSON number as it was written; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return Decimal(str(value))


def to_offer(api: Api, row: t.Any, operation: str, disk_gib: int, now: datetime, *, bid: bool) -> Offer:
    """One row of a search, priced with a disk of ``disk_gib``. BadShape for a row without id, name or number of GPUs, for one of which a part
    costs less than nothing, and for one whose price is impossibly high.

    On demand it costs what ``_on_demand`` says. A bid is another price: what the renter pays for the GPUs, at least ``min_bid``, and the disk.
    ``search.totalHour`` is what the host asks and not what a bid pays. The premium pays for promised reliability, which a machine that can
    be interrupted does not have. If Vast.ai bills one all the same, the row of the instance says so (``to_instance``)."""
    api.expect(api.expect(row, dict, operation, "an offer").get("id"), int, operation, "id of an offer")
    name = api.expect(row.get("gpu_name"), str, operation, f"gpu_name of offer {row['id']}")
    count = api.expect(row.get("num_gpus"), int, operation, f"num_gpus of offer {row['id']}")
    model, memory = model_of(name), decimal(row.get("gpu_ram"))
    lowest, disk = money(row.get("min_bid")), _disk_of(row, gigabytes(disk_gib))
    premium = Decimal(0) if bid else _premium(row, "search")
    prices = ([] if lowest is None else [lowest + disk]) if bid else _on_demand(row, disk, premium)
    price = max(prices, default=None)
    if price is not None and (min(*prices, disk, premium) < 0 or price >= _ABSURD):
        raise api.bad_shape(
            operation,
            f"the price of offer {row['id']} is {min(prices)}, its disk's part {disk}, its premium for reliability {premium}",
        )
    place = _text(row.get("geolocation")) or _text(row.get("country_code"))
    return Offer(
        cloud="vast",
        id=f"{row['id']}{BID if bid else ''}",
        instance_type=f"{count}x {name}",
        model=model,
        gpu_count=count,
        price_hour=price,
        region=standard_region(place, PLACES),
        cloud_region=place,
        gpu_memory_mib=memory_mib(model, float(memory)) if memory is not None else None,
        vcpus=None if (cores := decimal(row.get("cpu_cores_effective"))) is None else int(cores),
        memory_mib=_share_of_memory(row),
        disk_gib=disk_gib,
        spot=bid,
        storage_price_hour=disk,
        available=1,
        reliability=decimal(row.get("reliability2")) or decimal(row.get("reliability")),
        host_id=str(row.get("machine_id") or ""),
        lanes=(Lane.KUBELET, Lane.SERVICE) if _can_be_node(row) else (Lane.SERVICE,),
        seen=now,
        min_bid=lowest if bid else None,
        traffic_price_gb_down=_per_gigabyte(row.get("inet_down_cost")),
        traffic_price_gb_up=_per_gigabyte(row.get("inet_up_cost")),
        traits=_traits(row),
    )


def _on_demand(row: Row, disk: Decimal, premium: Decimal) -> list[Decimal]:
    """What an offer may cost per hour: the sum of its parts, and the total that the search names. The larger counts.

    Our searches ask for the disk with which offers are priced, so the total contains the same disk. A total for a smaller disk is below the
    sum and changes nothing. Whether ``dph_total``, which stands in for parts that are not reported, holds the premium
    is not documented, so the premium is added: a price that is too high costs an offer, one that is too low breaks a limit."""
    base, total = money(row.get("dph_base")), money(row.get("dph_total"))
    parts = base + disk if base is not None else total
    search_total = money(part(row, "search").get("totalHour"))
    return [price for price in (None if parts is None else parts + premium, search_total) if price is not None]


def _while_it_runs(total: Decimal | None, parts: Decimal | None, premium: Decimal) -> Decimal | None:
    """Dollars per hour of a machine: the total of its row, and the sum of its parts where that is not reported. The total may lack a
    premium, so with one the larger of the total and the sum counts. A premium that cannot be changes nothing."""
    sum_ = total if parts is None else parts
    if not 0 < premium < _ABSURD or sum_ is None:
        return sum_ if total is None else total
    return max(sum_ + premium, sum_ if total is None else total)


def _premium(row: Row, contract: str) -> Decimal:
    """Dollars per hour for a promised reliability, of the new contract (``search``) or of an existing one (``instance``); 0 where it is not
    reported."""
    return money(part(row, contract).get("slaPremiumPerHour")) or Decimal(0)


def _per_gigabyte(value: t.Any) -> Decimal | None:
    """Dollars per GB of traffic. It is in no price, so a value that cannot be leaves the offer as it is."""
    price = money(value)
    return price if price is not None and 0 <= price < _ABSURD else None


def _can_be_node(row: Row) -> bool:
    """Whether it has virtual machines, and Vast.ai has not withdrawn its word that they work (``is_vm_deverified``)."""
    return row.get("vms_enabled") is True and not row.get("is_vm_deverified")


def _disk_of(row: Row, disk_gb: int) -> Decimal:
    """Dollars per hour for the disk: by its cost per GB, and where that is not reported what the whole costs more than the machine."""
    total, base = money(row.get("dph_total")), money(row.get("dph_base"))
    if row.get("storage_cost") is None and total is not None and base is not None:
        return max(total - base, Decimal(0))
    return storage_price(disk_gb, row.get("storage_cost"))


def _share_of_memory(row: Row) -> int | None:
    """``cpu_ram`` is the whole host's; an offer gets the share of its cores."""
    ram, cores, all_cores = (decimal(row.get(key)) for key in ("cpu_ram", "cpu_cores_effective", "cpu_cores"))
    return int(ram * cores / all_cores) if ram is not None and cores and all_cores else None


def _traits(row: Row) -> dict[str, str]:
    """Facts about the host, as model/ names them. What is not reported is not there."""
    verified = row.get("verification") or {"True": "verified", "False": "unverified"}.get(str(row.get("verified")))
    static = row.get("static_ip")
    traits = {
        "verified": None if verified is None else str(verified == "verified").lower(),
        "cuda": _plain(row.get("cuda_max_good")),
        "inet-down": _plain(row.get("inet_down")),
        "ports": _plain(row.get("direct_port_count")),
        "static-ip": str(static).lower() if isinstance(static, bool) else None,
        "datacenter": str(row["hosting_type"] == 1).lower() if isinstance(row.get("hosting_type"), int) else None,
        "duration": None if (left := decimal(row.get("duration"))) is None else str(int(left)),
    }
    return {key: value for key, value in traits.items() if value is not None}


def _plain(value: t.Any) -> str | None:
    number = decimal(value)
    return None if number is None else f"{number:f}"


def to_instance(api: Api, row: t.Any, operation: str, facts: Capability, now: datetime) -> Instance:
    """One machine. Only ``id`` must be there."""
    api.expect(row, dict, operation, "an instance")
    identity = str(api.expect(row.get("id"), int, operation, "id of an instance"))
    redact.register(*(row[key] for key in ("jupyter_token", "instance_api_key") if isinstance(row.get(key), str)))
    word, message = _text(row.get("actual_status")) or "created", _text(row.get("status_msg"))
    halted = all(row.get(key) == "stopped" for key in ("cur_state", "intended_status", "next_state"))
    state, interrupted, failed = _state(row, word, message, facts, now, halted)
    name, count, address = _text(row.get("gpu_name")), row.get("num_gpus"), _text(row.get("public_ipaddr"))
    started, uptime = decimal(row.get("start_date")), decimal(row.get("uptime_mins"))
    total, base, spot = money(row.get("dph_total")), money(row.get("dph_base")), row.get("is_bid")
    disk = storage_price(row.get("disk_space"), row.get("storage_cost"))
    if not disk and total is not None and base is not None:
        disk = max(total - base, Decimal(0))
    created = None if started is None or not 0 <= started < _LATEST else datetime.fromtimestamp(float(started), timezone.utc)
    inside = row.get("local_ipaddrs")
    return Instance(
        cloud="vast",
        id=identity,
        name=_text(row.get("label")),
        state=state,
        raw_state=word,
        created=created,
        price_hour=_while_it_runs(total, None if base is None else base + disk, _premium(row, "instance")),
        ip=address,
        private_ip=inside.split()[0] if isinstance(inside, str) and inside.split() else "",
        region=_text(row.get("geolocation")),
        instance_type=f"{count}x {name}" if name and isinstance(count, int) else "",
        model=model_of(name) if name else "",
        gpu_count=count if isinstance(count, int) else None,
        host_id=str(row.get("machine_id") or ""),
        marks=_marks(row.get("extra_env")),
        problem=_problem(message, state, interrupted, failed, halted),
        interrupted=interrupted,
        halted=halted,
        spot=spot if isinstance(spot, bool) else None,
        running_since=_running_since(word, uptime, created, now),
        storage_price_hour=disk,
        disk_gib=None if (size := decimal(row.get("disk_space"))) is None else gibibytes(round(size)) or None,
        ports=_ports(row.get("ports"), address),
    )


def _running_since(word: str, uptime: Decimal | None, created: datetime | None, now: datetime) -> datetime | None:
    """Since when its GPUs are billed. One that has exited ran before, but its uptime is no longer reported: it ran at most
    since its creation."""
    if word == "running" and uptime is not None and 0 <= uptime < _LONGEST:
        return now - timedelta(minutes=float(uptime))
    return created if word == "exited" else None


def _state(row: Row, word: str, message: str, facts: Capability, now: datetime, halted: bool) -> tuple[InstanceState, bool, bool]:
    """Our state; whether its GPUs were taken away; whether its boot failed.

    All three states "stopped" is what an outbid, unpaid or expired machine looks like: it would come back when the bid wins again. One on
    demand that is not at its end was stopped by its owner, or because the account has no money."""
    if halted:
        return InstanceState.STOPPED, row.get("is_bid") is not False or _is_over(row, now), False
    low = message.lower()
    if word in _BOOTING and (low.startswith("error") or any(words in low for words in _FAILED_WORDS)):
        return InstanceState.FAILED, False, True
    state = facts.read_state(word)
    if state is InstanceState.RUNNING and row.get("intended_status") not in (None, "running"):
        return InstanceState.UNKNOWN, False, False  # on its way to something else
    return state, False, False


def _is_over(row: Row, now: datetime) -> bool:
    """Whether its contract has come to its end."""
    end = decimal(row.get("end_date"))
    return end is not None and end <= Decimal(str(now.timestamp()))


def _problem(message: str, state: InstanceState, interrupted: bool, failed: bool, halted: bool) -> str:
    if halted and not interrupted:
        return _STOPPED
    return redact.redact(message[:300]) if failed or state in (InstanceState.FAILED, InstanceState.UNKNOWN) else ""


def _marks(pairs: t.Any) -> dict[str, str]:
    """Our marks out of the variables it was made with. Others are not read: some are secrets."""
    values = (
        {str(pair[0]): str(pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2}
        if isinstance(pairs, list)
        else {}
    )
    return {key: values[variable(key)] for key in values.get(MARKS, "").split() if variable(key) in values}


def variable(mark: str) -> str:
    """The environment variable of a mark."""
    return "TGP_" + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in mark.upper())


def _ports(value: t.Any, address: str) -> dict[str, str]:
    """{"22/tcp": [{"HostPort": "40112"}]} as {"22/tcp": "203.0.113.9:40112"}; entries are null while the machine is young."""
    ports = {}
    for port, places in value.items() if isinstance(value, dict) and address else ():
        first = places[0] if isinstance(places, list) and places else None
        if isinstance(first, dict) and first.get("HostPort"):
            ports[str(port)] = f"{address}:{first['HostPort']}"
    return ports


def _text(value: t.Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def to_charge(api: Api, row: t.Any, operation: str) -> Charge | None:
    """What an instance was billed on one day (UTC), with what it is for in items; None for a row about something else than an instance."""
    source = api.expect(api.expect(row, dict, operation, "a charge").get("source"), str, operation, "source of a charge")
    if not source.startswith(_CHARGED):
        return None
    items = [item for item in row.get("items") or () if isinstance(item, dict)]
    traffic = sum((_amount(api, item, operation) for item in items if item.get("type") in _TRAFFIC), Decimal(0))
    label = part(row, "metadata").get("label")
    words = frozenset({label} if isinstance(label, str) and label else ())
    amount = _amount(api, row, operation) - traffic
    return Charge(source.removeprefix(_CHARGED), words, amount, traffic, _ROUNDED * max(1, len(items)))


def _amount(api: Api, entry: dict[str, t.Any], operation: str) -> Decimal:
    amount = decimal(entry.get("amount"))
    if amount is None:
        raise api.bad_shape(operation, "the amount of a charge is not a number")
    return amount
