"""W7, run inside the generator process: requests to an agent whose executor does nothing, seen from a socket of the sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from hub.bench import meter
from hub.bench.figures import Sample, percentile
from hub.bench.sockets import Address, Frame, Socket, connect
from hub.bench.targets import Hub
from hub.bench.workloads import SETTLE_SECONDS, Run, Workload, sample

LATENCY_TRACES = 100
PAUSE_SECONDS = 0.03
SESSIONS = 8
IN_FLIGHT = 8
END_SECONDS = 10.0


class TraceFrame(Frame, frozen=True, gc=False):
    """What W7 looks at besides: which trace, its status, and whether a message is its result."""

    trace_id: str | None = None
    status: str | None = None
    kind: str | None = None


_one = msgspec.json.Decoder(TraceFrame).decode


class Requester:
    """One session's socket. Times are seconds from the ack of a request; the requests of one session run at the same time."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = 0
        self.problems: list[str] = []
        self.running: list[float] = []
        self.results: list[float] = []
        self.in_flight = 0
        self.moved = asyncio.Event()
        self._acked: dict[str, float] = {}
        self._ran: dict[str, float] = {}
        self._socket: Socket | None = None

    async def open(self, address: Address) -> None:
        self._socket = await connect(address, self._on_frames, decode=lambda payload: [_one(payload)])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def request(self) -> None:
        assert self._socket is not None
        self.sent += 1
        self._socket.send(b'{"type":"message","content":"do nothing","requires_execution":true}')

    def keep(self, in_flight: int) -> None:
        """Have so many requests under way from now on; 0: send no more."""
        self.in_flight = in_flight
        while self.sent - self.ended < self.in_flight:
            self.request()

    @property
    def settled(self) -> bool:
        return self.ended >= self.sent

    def _on_frames(self, frames: Sequence[Frame]) -> None:
        now = time.perf_counter()
        for frame in frames:
            assert isinstance(frame, TraceFrame)
            trace_id = frame.trace_id or ""
            if frame.type == "ack":
                self._acked[trace_id] = now
                # Frames of different kinds are not ordered: it may have begun before its ack was written.
                if (ran := self._ran.pop(trace_id, None)) is not None:
                    self.running.append(max(0.0, ran - now))
            elif frame.type == "trace" and frame.status == "running":
                if (acked := self._acked.get(trace_id)) is not None:
                    self.running.append(now - acked)
                else:
                    self._ran[trace_id] = now
            elif frame.type == "message" and frame.kind == "result":
                acked = self._acked.pop(trace_id, None)
                if acked is None:
                    self.problems.append("a result of nothing that was asked, or twice")
                    continue
                self.results.append(now - acked)
                self.ended += 1
                self.moved.set()
                self.keep(self.in_flight)
            elif frame.type == "error":
                self.problems.append(f"error {frame.code}")


async def latency(run: Run, *, traces: int = LATENCY_TRACES) -> Sample:
    """One at a time, on a hub that has nothing else to do."""
    [requester] = await _requesters(run, 1)
    stop = meter.start(run.server_pid, *run.helper_pids)
    deadline = time.perf_counter() + 4 * run.seconds + SETTLE_SECONDS
    begun = time.perf_counter()
    while requester.sent < traces and time.perf_counter() - begun < 4 * run.seconds:
        await asyncio.sleep(PAUSE_SECONDS)
        requester.request()
        while not requester.settled and time.perf_counter() < deadline:
            await _moved([requester])
    spent = stop()
    problems = _problems([requester])
    requester.close()
    # The first tenth warms caches and connections up.
    running, results = (times[len(times) // 10 :] for times in (requester.running, requester.results))
    values = {}
    if running and results:
        values = {
            "running_p50_ms": percentile(running, 0.5) * 1e3,
            "running_p99_ms": percentile(running, 0.99) * 1e3,
            "result_p50_ms": percentile(results, 0.5) * 1e3,
        }
    return sample(run, "w7", spent, problems, **values)


async def throughput(run: Run) -> Sample:
    """As many as get done, with a full window in each session."""
    requesters = await _requesters(run, SESSIONS)
    for requester in requesters:
        requester.keep(IN_FLIGHT)
    await asyncio.sleep(max(1.0, run.warm_seconds))
    stop = meter.start(run.server_pid, *run.helper_pids)
    before = sum(requester.ended for requester in requesters)
    await asyncio.sleep(3 * run.seconds)
    ended = sum(requester.ended for requester in requesters) - before
    spent = stop()
    for requester in requesters:
        requester.keep(0)
    deadline = time.perf_counter() + END_SECONDS
    while not all(requester.settled for requester in requesters) and time.perf_counter() < deadline:
        await _moved(requesters)
    problems = _problems(requesters)
    for requester in requesters:
        requester.close()
    values = {"traces_per_second": ended / spent.seconds}
    if ended:
        values["cpu_ms_per_trace"] = spent.server_cpu * spent.seconds * 1e3 / ended
    return sample(run, "w7full", spent, problems, **values)


async def _requesters(run: Run, number: int) -> list[Requester]:
    assert isinstance(run.target, Hub)
    made = []
    for address in await run.target.trace_rooms(number):
        requester = Requester()
        await requester.open(address)
        made.append(requester)
    return made


async def _moved(requesters: Sequence[Requester]) -> None:
    """Until one that owes something has its next result, a second at the most."""
    requester = next(requester for requester in requesters if not requester.settled)
    requester.moved.clear()
    try:
        await asyncio.wait_for(requester.moved.wait(), 1.0)
    except TimeoutError:
        pass


def _problems(requesters: Sequence[Requester]) -> list[str]:
    missing = sum(requester.sent - requester.ended for requester in requesters)
    found = [f"{missing} traces without their result"] if missing else []
    return found + [problem for requester in requesters for problem in requester.problems]


RUNNERS: dict[str, Workload] = {"w7": latency, "w7full": throughput}
