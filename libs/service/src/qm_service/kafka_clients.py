"""How we build, use and let go of aiokafka's clients. What is set here is not optional."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from qm_service.log import LogUnavailable

LIMIT_SECONDS = 5.0
"""For one call of the broker; a client that needs longer is given up and built anew."""
QUIET_SECONDS = 10.0
_PARTITION_FETCH_BYTES = 256 * 1024
_BATCH_BYTES = 256 * 1024

C = TypeVar("C", AIOKafkaProducer, AIOKafkaConsumer)

logger = logging.getLogger(__name__)


@asynccontextmanager
async def bounded(what: str) -> AsyncIterator[None]:
    """Give a call LIMIT_SECONDS; all that Kafka or the network say comes out as LogUnavailable, save a lost offset."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield
    except OffsetOutOfRangeError:
        raise
    except (KafkaError, OSError, TimeoutError) as error:
        raise LogUnavailable(f"{what}: {error!r}") from error


async def new_producer(servers: str, connection: Mapping[str, Any]) -> AIOKafkaProducer:
    """Return a connected producer. Raises LogUnavailable."""
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        enable_idempotence=True,
        max_batch_size=_BATCH_BYTES,
        request_timeout_ms=int(LIMIT_SECONDS * 1000),
        **connection,
    )
    try:
        async with bounded("connect"):
            await producer.start()
    except BaseException:
        await abandon(producer)
        raise
    return producer


async def new_consumer(servers: str, connection: Mapping[str, Any]) -> AIOKafkaConsumer:
    """Return a connected consumer without a group: the position is the caller's. Raises LogUnavailable."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
        request_timeout_ms=int(LIMIT_SECONDS * 1000),
        **connection,
    )
    try:
        async with bounded("connect"):
            await consumer.start()
    except BaseException:
        await abandon(consumer)
        raise
    return consumer


async def abandon(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """End a client within about a second, without waiting for what it still holds."""
    if isinstance(client, AIOKafkaProducer):
        await _end_producer(client)
    else:
        # It may break off half way, with the cancellation of its own fetch; so the connections are closed after it.
        await _end(client.stop())
        await _end(client._client.close())


async def _end_producer(producer: AIOKafkaProducer) -> None:
    # Not `stop()`: it flushes first and hangs for as long as the broker is away (aiokafka #1101).
    sender = producer._sender.sender_task
    for _ in range(5):  # the first cancellation makes it wait for the requests under way, the second ends that too
        if sender is not None and not sender.done():
            sender.cancel()
            await asyncio.wait([sender], timeout=0.1)
    producer._closed = True
    await _end(producer.client.close())


async def _end(ending: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(ending)
    await asyncio.wait([task], timeout=1.0)
    task.cancel()
    if task.done() and not task.cancelled() and (error := task.exception()):
        logger.debug("a client did not end in peace: %r", error)


class Shared(Generic[C]):
    """One client for all who call at the same time, made by the first and given up when a call fails."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._connect = connect
        self._making: asyncio.Task[C] | None = None

    @asynccontextmanager
    async def use(self, what: str) -> AsyncIterator[C]:
        """Give the client for one call of at most LIMIT_SECONDS. Raises LogUnavailable; the next call gets another."""
        client = await self._get()
        try:
            async with bounded(what):
                yield client
        except LogUnavailable:
            if self._making and self._making.done() and self._making.result() is client:
                self._making = None
                await abandon(client)
            raise

    async def close(self) -> None:
        """Let go of the client."""
        making, self._making = self._making, None
        if making is None:
            return
        making.cancel()
        await asyncio.wait([making])
        if not making.cancelled() and making.exception() is None:
            await abandon(making.result())

    async def _get(self) -> C:
        making = self._making = self._making or asyncio.create_task(self._connect())
        try:
            return await asyncio.shield(making)
        except LogUnavailable:
            if self._making is making:
                self._making = None
            raise


class _Quiet(logging.Filter):
    """Lets one message of a kind through in QUIET_SECONDS: a client of a dead broker writes hundreds a second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.msg)
        if record.created - self._last.get(kind, 0.0) < QUIET_SECONDS:
            return False
        self._last[kind] = record.created
        return True


_QUIET = _Quiet()


def quiet_clients() -> None:
    """Rate-limit the loggers of aiokafka. A filter does not reach the loggers below it, so each gets it."""
    for name, child in logging.root.manager.loggerDict.items():
        if name.startswith("aiokafka") and isinstance(child, logging.Logger):
            child.addFilter(_QUIET)
