"""Where the hub may be sent by a URL: the table of addresses, the allow-list, and names that resolve to anything."""

from __future__ import annotations

from typing import Any

import pytest

from hub.a2a.addresses import AddressRefused, check_url, checked_addresses, is_public

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
NOT_PUBLIC = [
    # loopback, unspecified, private, shared, link-local (the clouds' metadata), broadcast, multicast, reserved, documentation
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "169.254.169.254", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.1", "198.18.0.1", "192.0.0.1",
    "::1", "::", "fe80::1", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1", "2001:db8::1", "100::1",
    # IPv4 inside of IPv6: mapped, compatible, 6to4, NAT64, Teredo
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::7f00:1", "2002:7f00:1::1", "2002:a00:1::1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2001:0:7f00:1::1",
    "not an address", "",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(AddressRefused, match="not at a public address"):
        check_url("https://agents.example.org/", resolve=lambda host, port: [address])


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://localhost/", "https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://[::1]/",
        "https://[::ffff:127.0.0.1]/", "https://0/", "https://017700000001/", "https://localhost./",
    ],
)  # fmt: skip
def test_the_ways_to_write_loopback_all_lead_to_loopback(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://agents.example.org/", "ftp://agents.example.org/", "file:///etc/passwd", "gopher://x/", "//agents.example.org/",
        "agents.example.org", "https://", "https:///path", "https://user:pass@agents.example.org/", "https://user@agents.example.org/",
        "https://agents.example.org/#fragment", "https://agents.example.org:99999/", "https://agents.example.org:0/",
        "https://agents.example.org\\@evil.example/", "https://agents.example.org/a b", "https://agents.example.org/\r\nHost: x",
        "https://agents%2eexample.org/", "https://agents.example.org/" + "x" * 2048, "https://[::1", "", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_a_url_that_is_not_plain_https_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url, resolve=lambda host, port: ["93.184.216.34"])


def test_one_bad_address_among_good_ones_is_enough() -> None:
    with pytest.raises(AddressRefused):
        check_url("https://agents.example.org/", resolve=lambda host, port: ["93.184.216.34", "10.0.0.1"])


def test_a_host_that_can_not_be_found_is_refused() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(AddressRefused, match="can't be found"):
        check_url("https://agents.example.org/", resolve=nowhere)


@pytest.mark.parametrize(
    ("allow", "url", "address", "goes"),
    [
        ("127.0.0.0/8", "http://localhost:8000/", "127.0.0.1", True),
        ("127.0.0.1", "https://localhost/", "127.0.0.1", True),
        ("localhost", "http://localhost/", "127.0.0.1", True),
        ("LOCALHOST.", "http://localhost/", "127.0.0.1", True),
        ("::1", "http://[::1]/", "::1", True),
        ("10.0.0.0/8", "https://inside.example.org/", "10.1.2.3", True),
        ("10.0.0.0/8", "https://inside.example.org/", "169.254.169.254", False),
        ("localhost", "http://other.example.org/", "127.0.0.1", False),
        ("localhost", "http://agents.example.org/", "93.184.216.34", False),  # http is for what is named only
        ("*", "http://anything.example.org/", "10.0.0.1", True),
        ("", "https://agents.example.org/", "93.184.216.34", True),
    ],
)
def test_the_setting_names_what_is_gone_to_besides(
    settings: Any, allow: str, url: str, address: str, goes: bool
) -> None:
    settings.HUB_A2A_ALLOW = [allow] if allow else []
    if goes:
        assert check_url(url, resolve=lambda host, port: [address]) == url
    else:
        with pytest.raises(AddressRefused):
            check_url(url, resolve=lambda host, port: [address])


def test_what_was_judged_is_what_is_returned() -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])  # a name that changes its mind
    assert checked_addresses("agents.example.org", 443, resolve=lambda host, port: next(answers)) == ["93.184.216.34"]
