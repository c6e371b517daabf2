"""How large requests are, and when the next one may be sent."""

from __future__ import annotations

from redrive.kernel.backoff import Backoff
from redrive.outbox.projection import RequestSize
from redrive.outbox.relay import SinkBackoff


def test_requests_shrink_and_grow_back() -> None:
    size = RequestSize(500, 1000, 5.0)
    assert size.cut([1] * 600) == 500
    assert size.cut([400, 400, 400]) == 2 and size.cut([5000]) == 1
    size.was_too_large(500, 800)
    assert (size.events, size.bytes) == (250, 400)
    size.took(250, 6.0)
    assert size.events == 125
    size.took(125, 4.0)
    assert size.events == 125, "neither slow nor quick"
    for _ in range(20):
        size.took(size.events, 0.1)
    assert (size.events, size.bytes) == (500, 400), "what was too large is not tried again"
    for _ in range(20):
        size.was_too_large(1, 1)
    assert (size.events, size.bytes) == (1, 1)


def test_a_sink_that_is_down_is_left_alone_for_longer_each_time() -> None:
    backoff = SinkBackoff(Backoff(1.0, 60.0))
    assert backoff.wait(0.0) == 0.0
    now, requests = 0.0, 0
    while now < 120.0:
        now += backoff.wait(now)
        requests += 1
        backoff.failed(now, 0.5)
        backoff.failed(now, 0.5)  # another that was under way
    assert requests == 9, "the last one after the two minutes"
    assert 0 < backoff.wait(now) <= 60.0, "it is tried again within one backoff"
    backoff.succeeded()
    assert backoff.wait(now) == 0.0
    backoff.failed(now, 0.0, 300.0)
    assert backoff.wait(now) == 300.0, "as long as the sink asks for"
