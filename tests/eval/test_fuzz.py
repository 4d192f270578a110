"""Broken requests are answered, and what is not understood arrives as it was."""

from __future__ import annotations

import asyncio
import random

import pytest

from eval import fuzz


def test_the_same_seed_breaks_the_same_things_and_another_one_others() -> None:
    def made(seed: int) -> list[bytes]:
        chance = random.Random(seed)
        return [fuzz.damaged(chance, number).wire() for number in range(50)]

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_much_is_broken_and_in_many_ways() -> None:
    chance = random.Random(3)
    kinds = {fuzz.damaged(chance, number).kind for number in range(500)}
    assert len(kinds) > 20


def test_a_500_of_the_proxys_own_and_a_changed_body_are_faults() -> None:
    request = fuzz.Request("POST", "/v1/chat/completions", [], b"{", "bytes")
    assert fuzz._judge(request, 500, {}, b"") != ""
    assert fuzz._judge(request, 500, {"x-body-sha256": "x"}, b"") == ""  # the backend's
    assert fuzz._judge(request, 200, {"x-antiphon-reason": "not-understood: no", "x-body-sha256": "x"}, b"") != ""
    assert fuzz._judge(request, 504, {}, b'{"code":"only_if_cached"}') == ""


@pytest.mark.slow
def test_no_request_however_broken_makes_the_proxy_fail() -> None:
    findings = asyncio.run(fuzz.run(3000, seed=11))
    assert findings.faults == []
    assert findings.requests == 3000
    assert findings.not_understood > 300
    assert findings.reuse["miss"] > 100
