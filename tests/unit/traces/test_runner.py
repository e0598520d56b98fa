"""An attempt that is over is not waited for, whatever its executor does."""

from __future__ import annotations

import threading
import time

from traces_app.attempts import Attempt
from traces_app.lifecycle import Claimed
from traces_app.runner import _Run


class Blocked(_Run):
    """An executor that never looks up, until it is let go."""

    let_go = threading.Event()

    def _run(self) -> None:
        self.let_go.wait(60)


def test_an_attempt_that_was_stopped_before_its_executor_began_is_over_at_once() -> None:
    attempt = Attempt(Claimed(1, 1, "trace-1", 1, "python:x"), time.monotonic() + 3600)
    attempt.stop("over")
    outcomes: list[object] = []
    waiting = threading.Thread(target=lambda: outcomes.append(Blocked(attempt).outcome()), daemon=True)
    waiting.start()
    waiting.join(30)
    Blocked.let_go.set()
    assert outcomes == [None]
