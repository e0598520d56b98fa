"""The workloads, run inside the generator process. Each returns one `Sample`; what it counts is in `DESCRIPTIONS`."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hub.bench import meter
from hub.bench.figures import Sample, percentile
from hub.bench.lanes import Lane
from hub.bench.sockets import Frame, Socket, connect
from hub.bench.targets import Room, Target

DESCRIPTIONS = {
    "w1": "messages committed, acknowledged and received per second: S senders, each its own session with one "
    "receiver, 32 in flight",
    "w2": "send → the peer has it, one message at a time; and at a steady 300 msg/s over 16 sessions",
    "w3": "deliveries per second from one sender to 50 receivers",
    "w4": "20,000 unread: connect → the last one received",
    "w5": "2,000 idle sockets, two to a session: memory per socket, connects per second, CPU of the server meanwhile",
    "w7": "traces of an executor that does nothing: ack → running and ack → result, one at a time; and 64 in flight over 8 "
    "sessions: traces per second, processor time of all the hub's processes per trace",
    "w8": "W1 ×1 and a page of 50 in a session that holds 10,000 messages and in one that holds 1,000,000, in turns",
}
W4_MESSAGES = 20_000
W5_SOCKETS = 2_000
W8_HISTORIES = (10_000, 1_000_000)
SETTLE_SECONDS = 20.0
STALL_SECONDS = 3.0


class Run(Struct, frozen=True, kw_only=True):
    """What a workload needs to know. `seconds` is the counted span, after a warm-up of `warm_seconds`.

    `database` is the path of a hub's SQLite file.
    """

    row: str
    target: Target
    server_pid: int
    helper_pids: Sequence[int] = ()
    batched: bool
    seconds: float
    warm_seconds: float
    backlog: int = W4_MESSAGES
    idle_sockets: int = W5_SOCKETS
    histories: tuple[int, int] = W8_HISTORIES
    database: str | None = None


Workload = Callable[[Run], Awaitable[Sample]]


class Connected(Struct):
    """A lane with its open sockets."""

    lane: Lane
    sender: Socket
    receivers: list[Socket]

    def close(self) -> None:
        for socket in [*self.receivers, self.sender]:
            socket.close()


async def throughput(run: Run, workload: str, *, lanes: int, receivers: int = 1) -> Sample:
    """W1 and W3: full windows on all lanes, counted over a span after the warm-up."""
    connected = [await open_lane(run, room) for room in await run.target.rooms(lanes, receivers)]
    gc.collect()
    gc.freeze()
    for each in connected:
        each.lane.run(each.sender)
    await asyncio.sleep(run.warm_seconds)

    stop = meter.start(run.server_pid)
    finished, delivered = _progress(connected)
    await asyncio.sleep(run.seconds)
    finished_then, delivered_then = _progress(connected)
    spent = stop()
    messages = finished_then - finished

    for each in connected:
        each.lane.stop()
    problems = await settle(connected)
    for each in connected:
        each.close()
    return sample(
        run,
        workload,
        spent,
        problems,
        messages_per_second=messages / spent.seconds,
        deliveries_per_second=(delivered_then - delivered) / spent.seconds,
        **({"cpu_us_per_message": spent.server_cpu * spent.seconds * 1e6 / messages} if messages else {}),
    )


async def one_at_a_time(run: Run, *, messages: int = 600) -> Sample:
    """W2: the next message is sent when the last one has been acknowledged and received."""
    [room] = await run.target.rooms(1, 1)
    lane = Lane(run.target.encode, batched=run.batched)
    received, acked = Stopwatch(), Stopwatch()
    deadline = time.perf_counter() + 2 * run.seconds + run.warm_seconds
    over = asyncio.get_running_loop().create_future()

    def go_on() -> None:
        # Not by what greets a new socket: the first message is sent below, when both ends are connected.
        if lane.sent and lane.sent == len(received.seconds) == len(acked.seconds) and not over.done():
            if lane.sent >= messages or time.perf_counter() >= deadline:
                over.set_result(None)
            else:
                send()

    def send() -> None:
        received.start()
        acked.start()
        lane.send_one(sender)

    def on_receiver_frames(frames: list[Frame]) -> None:
        received.stop(frames, "message")
        lane.receivers[0].on_frames(frames)
        go_on()

    def on_sender_frames(frames: list[Frame]) -> None:
        acked.stop(frames, "ack")
        lane.on_sender_frames(frames)
        go_on()

    receiver = await connect(room.receivers[0], on_receiver_frames)
    sender = await connect(room.sender, on_sender_frames)
    connected = [Connected(lane, sender, [receiver])]
    stop = meter.start(run.server_pid)
    send()
    try:
        async with asyncio.timeout(2 * run.seconds + SETTLE_SECONDS):
            await over
    except TimeoutError:
        pass  # told by the lane's problems: a send without its ack, or a delivery missing
    spent = stop()
    problems = await settle(connected)
    connected[0].close()
    return sample(run, "w2", spent, problems, **_latencies(received.seconds, acked.seconds))


async def steady(run: Run, *, rate: int = 300, lanes: int = 16) -> Sample:
    """W2 under load: an open loop, so that a slow server does not slow its sender down."""
    connected: list[Connected] = []
    received, acked = [Stopwatch() for _ in range(lanes)], [Stopwatch() for _ in range(lanes)]
    for number, room in enumerate(await run.target.rooms(lanes, 1)):
        connected.append(await _open_timed(run, room, received[number], acked[number]))
    gc.collect()
    stop = meter.start(run.server_pid)
    began = time.perf_counter()
    late: list[float] = []
    for number in range(int(rate * 2 * run.seconds)):
        due = began + number / rate
        await asyncio.sleep(due - time.perf_counter())
        late.append(time.perf_counter() - due)
        turn = number % lanes
        received[turn].start()
        acked[turn].start()
        connected[turn].lane.send_one(connected[turn].sender)
    spent = stop()
    problems = await settle(connected)
    for each in connected:
        each.close()
    latencies = _latencies(
        [seconds for watch in received for seconds in watch.seconds],
        [seconds for watch in acked for seconds in watch.seconds],
    )
    return sample(run, "w2steady", spent, problems, **latencies, late_p99_ms=percentile(late, 0.99) * 1e3)


async def replay(run: Run) -> Sample:
    """W4: the connection is cut, not closed, so that nothing counts as read and the next run finds the same backlog."""
    address = await run.target.backlog(run.backlog)
    lane = Lane(run.target.encode)
    receiver = lane.receivers[0]
    done = asyncio.get_running_loop().create_future()
    first: list[float] = []

    def on_frames(frames: list[Frame]) -> None:
        receiver.on_frames(frames)
        if receiver.received and not first:
            first.append(time.perf_counter())
        if receiver.received >= run.backlog and not done.done():
            done.set_result(time.perf_counter())

    # The clock runs from before the connect to the last message, so being live (`ready`) must not be waited for.
    early = type(address)(address.url, address.headers, ready=None)
    gc.collect()
    stop = meter.start(run.server_pid)
    began = time.perf_counter()
    socket = await connect(early, on_frames)
    try:
        async with asyncio.timeout(3 * SETTLE_SECONDS):
            ended = await done
    except TimeoutError:
        raise RuntimeError(f"{receiver.received} of {run.backlog} replayed") from None
    finally:
        spent = stop()
        socket.cut()
    problems = [f"{receiver.misordered} replayed out of order or doubled"] if receiver.misordered else []
    return sample(
        run,
        "w4",
        spent,
        problems,
        milliseconds=(ended - began) * 1e3,
        first_ms=(first[0] - began) * 1e3,
        messages_per_second=run.backlog / (ended - began),
    )


async def idle(run: Run, *, parallel: int = 50) -> Sample:
    """W5: needs a server of its own, since memory that another workload gave back would hide the sockets' own."""
    rooms = await run.target.rooms(run.idle_sockets // 2 + parallel // 2, 1)
    addresses = [address for room in rooms for address in (room.sender, *room.receivers)]
    warm_up, counted = addresses[:parallel], addresses[parallel:]
    sockets = list(await asyncio.gather(*(connect(address, _ignore) for address in warm_up)))
    await asyncio.sleep(0.5)

    memory = meter.resident_kilobytes(run.server_pid)
    began = time.perf_counter()
    for start in range(0, len(counted), parallel):
        sockets += await asyncio.gather(*(connect(address, _ignore) for address in counted[start : start + parallel]))
    seconds = time.perf_counter() - began
    await asyncio.sleep(2.0)
    memory = meter.resident_kilobytes(run.server_pid) - memory

    stop = meter.start(run.server_pid)
    await asyncio.sleep(max(3.0, run.seconds))
    spent = stop()
    lost = sum(not socket.is_open for socket in sockets)
    for socket in sockets:
        socket.cut()
    return sample(
        run,
        "w5",
        spent,
        [f"{lost} of {len(sockets)} idle sockets were closed"] if lost else [],
        kilobytes_per_socket=memory / len(counted),
        connects_per_second=len(counted) / seconds,
        idle_cpu_percent=spent.server_cpu * 100,
    )


RUNNERS: dict[str, Workload] = {
    "w1x1": lambda run: throughput(run, "w1x1", lanes=1),
    "w1x8": lambda run: throughput(run, "w1x8", lanes=8),
    "w1x64": lambda run: throughput(run, "w1x64", lanes=64),
    "w2": one_at_a_time,
    "w2steady": steady,
    "w3": lambda run: throughput(run, "w3", lanes=1, receivers=50),
    "w4": replay,
    "w5": idle,
}


class Stopwatch:
    """Times what is answered in the order in which it was sent. Shapes: `seconds`, one per answer."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._running: deque[float] = deque()

    def start(self) -> None:
        self._running.append(time.perf_counter())

    def stop(self, frames: Sequence[Frame], answer: str) -> None:
        """Stop one running time for each frame of type `answer`."""
        now = time.perf_counter()
        for frame in frames:
            if frame.type == answer and self._running:
                self.seconds.append(now - self._running.popleft())


async def open_lane(run: Run, room: Room, *, after: int = 0) -> Connected:
    """A lane with its sockets live, in a room whose last sequence is `after`."""
    lane = Lane(run.target.encode, receivers=len(room.receivers), batched=run.batched, after=after)
    receivers = [
        await connect(address, receiver.on_frames)
        for address, receiver in zip(room.receivers, lane.receivers, strict=True)
    ]
    return Connected(lane, await connect(room.sender, lane.on_sender_frames), receivers)


async def _open_timed(run: Run, room: Room, received: Stopwatch, acked: Stopwatch) -> Connected:
    lane = Lane(run.target.encode, batched=run.batched)

    def on_receiver_frames(frames: list[Frame]) -> None:
        received.stop(frames, "message")
        lane.receivers[0].on_frames(frames)

    def on_sender_frames(frames: list[Frame]) -> None:
        acked.stop(frames, "ack")
        lane.on_sender_frames(frames)

    receiver = await connect(room.receivers[0], on_receiver_frames)
    return Connected(lane, await connect(room.sender, on_sender_frames), [receiver])


async def settle(connected: Sequence[Connected]) -> list[str]:
    """Wait until all that was sent has arrived, or nothing has come for a while; what is wrong then."""
    deadline = time.perf_counter() + SETTLE_SECONDS
    progress, moved = _progress(connected), time.perf_counter()
    while not all(each.lane.settled for each in connected):
        await asyncio.sleep(0.02)
        now, latest = time.perf_counter(), _progress(connected)
        if latest != progress:
            progress, moved = latest, now
        if now > deadline or now - moved > STALL_SECONDS:
            break
    found = [problem for each in connected for problem in each.lane.problems()]
    found += [
        "a socket was closed" for each in connected for socket in [each.sender, *each.receivers] if not socket.is_open
    ]
    return found


def _progress(connected: Sequence[Connected]) -> tuple[int, int]:
    return sum(each.lane.finished for each in connected), sum(each.lane.received for each in connected)


def _latencies(received: Sequence[float], acked: Sequence[float]) -> dict[str, float]:
    # The first tenth warms caches and connections up.
    received, acked = received[len(received) // 10 :], acked[len(acked) // 10 :]
    if not received or not acked:
        return {}
    return {
        "p50_ms": percentile(received, 0.5) * 1e3,
        "p99_ms": percentile(received, 0.99) * 1e3,
        "ack_p50_ms": percentile(acked, 0.5) * 1e3,
        "ack_p99_ms": percentile(acked, 0.99) * 1e3,
    }


def sample(run: Run, workload: str, spent: meter.Spent, problems: Sequence[str], **values: float) -> Sample:
    """What one run of a workload has found."""
    return Sample(
        row=run.row,
        workload=workload,
        values=values,
        generator_cpu=spent.generator_cpu,
        server_cpu=spent.server_cpu,
        foreign_cpu=spent.foreign_cpu,
        problems=tuple(dict.fromkeys(problems)),
    )


def _ignore(frames: list[Frame]) -> None:
    pass
