"""Wait for a drained certificate: looks that ask only for what can have changed, and a last one that asks all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from topicshift.acts.drain import DrainTaker
from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.decision import certify
from topicshift.core.drain.progress import DrainProgress, Tracker
from topicshift.core.errors import TopicshiftError
from topicshift.core.kafka.cluster import PartitionOffsets


class DrainWatch:
    """Waits for a drained certificate: ``async for progress in watch``. Holds no thread while it waits.

    The first look is a whole one, so a topic that is drained already is certified at once. Later looks ask only for
    what can have changed. Before a drained certificate is given out, everything is asked once more. The iteration ends
    after the progress whose certificate is drained, or when ``timeout_s`` has passed; ``certificate`` is the last one.
    A look that fails after the first one gives a certificate in which what could not be read is unknown.
    """

    def __init__(
        self,
        taker: DrainTaker,
        *,
        timeout_s: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.taker = taker
        self.timeout_s = timeout_s
        self.certificate: DrainCertificate | None = None
        self._sleep = sleep
        self._tracker = Tracker(stuck_after_s=taker.config.stuck_after_s)

    def __aiter__(self) -> AsyncIterator[DrainProgress]:
        return self._looks()

    async def _looks(self) -> AsyncIterator[DrainProgress]:
        taker = self.taker
        began = taker.now()
        whole = True
        certificate = await taker.take(second_sample=False)
        while True:
            if certificate.verdict is Verdict.DRAINED and not whole:
                certificate = await self._look(lambda: taker.take(second_sample=False))
            self.certificate = certificate
            at = taker.now()
            progress = self._tracker.add(certificate, at.timestamp(), self._members())
            yield progress
            if certificate.verdict is Verdict.DRAINED:
                return
            pause = self._pause(progress)
            if self.timeout_s is not None:
                left = self.timeout_s - (taker.now() - began).total_seconds()
                if left <= 0:
                    return
                pause = min(pause, left)
            await self._sleep(pause)
            last = certificate
            certificate = await self._look(lambda last=last: taker.refresh(last))  # type: ignore[misc]
            whole = False

    async def _look(self, look: Callable[[], Awaitable[DrainCertificate]]) -> DrainCertificate:
        try:
            return await look()
        except TopicshiftError as exc:
            return self._unreadable(str(exc))

    def _unreadable(self, why: str) -> DrainCertificate:
        """A certificate in which no partition could be read: the next look may succeed."""
        w = self.taker.world
        w.offsets = {p: PartitionOffsets(None, None, None, why) for p in range(w.partitions)}
        return certify(self.taker.snapshot(), valid_for_s=0.0, issued_by=self.taker.issued_by)

    def _members(self) -> dict[str, int]:
        return {g: len(i.members) for g, i in self.taker.world.described.items()}

    def _pause(self, progress: DrainProgress) -> float:
        """A quarter of the shortest time left: short when the end is near, longer for a long backlog."""
        lows = [g.left.low for g in progress.groups if g.verdict is not Verdict.DRAINED and g.left.low is not None]
        config = self.taker.config
        return min(config.poll_max_s, max(config.poll_s, min(lows, default=config.poll_s * 4) / 4))
