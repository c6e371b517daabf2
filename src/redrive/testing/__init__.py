"""For the tests of applications that use redrive: their App on a database in memory, with a clock they can move.

async def test_order_sends_a_mail():
    async with redrive.testing.using(app) as kit:
        await place_order(17)
        kit.assert_enqueued("SEND_EMAIL", to="a@b.c")
        await kit.drain()
        assert not kit.failures()
"""

from redrive.testing.kit import Clock, Drained, TestKit, using, using_sync

__all__ = ["Clock", "Drained", "TestKit", "using", "using_sync"]
