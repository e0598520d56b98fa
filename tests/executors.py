"""Executors for tests, named `python:tests.executors:…`. What they do is in `executor_config` or the task's text."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from traces_app.executors.contract import Completed, Failed, NeedsApproval, NeedsInput, Outcome, Report, Request


def echo(request: Request, report: Report) -> Completed:
    """As fast as it gets."""
    return Completed(f"done: {request.task}")


def steps(request: Request, report: Report) -> Completed:
    """`config`: `steps` (30), `seconds` each (0.05). Each step is a goal, a call and its result.

    Attempts before `lives` (1) wait in the middle, until somebody kills them; all do until there is a file `until`.
    """
    number, seconds = int(request.config.get("steps", 30)), float(request.config.get("seconds", 0.05))
    for step in range(1, number + 1):
        if step == number // 2 and request.attempt < int(request.config.get("lives", 1)):
            report.log(f"attempt {request.attempt} waits for its end")
            wait(report, lambda: False)
        if step == number // 2 and "until" in request.config:
            wait(report, Path(request.config["until"]).exists)
        report.goal(f"g{step}", f"step {step}", status="running")
        report.tool_call(f"c{step}", "work", {"step": step})
        time.sleep(seconds)
        report.tool_result(f"c{step}", "work", {"step": step})
        report.goal(f"g{step}", f"step {step}", status="done")
    return Completed(f"{number} steps in attempt {request.attempt}", context_patch={"focus_module": "core"})


def mortal(request: Request, report: Report) -> Completed:
    """Of its attempts `config.percent` (20) kill the process that runs them, each at another step; which is drawn by hash."""
    drawn = hashlib.sha256(f"{request.trace_id} {request.attempt}".encode()).digest()
    dies = drawn[0] * 100 < int(request.config.get("percent", 20)) * 256
    for step in range(4):
        if dies and step == drawn[1] % 4:
            os.kill(os.getpid(), signal.SIGKILL)
        report.goal(f"g{step}", f"step {step}", status="done")
    return Completed(f"lived in attempt {request.attempt}")


def sleeper(request: Request, report: Report) -> Completed:
    """Sleeps in small pieces for `config.seconds`, and can be cancelled between them."""
    end = time.monotonic() + float(request.config.get("seconds", 30))
    while time.monotonic() < end:
        report.check()
        time.sleep(0.02)
    return Completed("slept")


def wait(report: Report, condition: Callable[[], bool]) -> None:
    """Until it holds; a cancel ends it."""
    while not condition():
        report.check()
        time.sleep(0.02)


def deaf(request: Request, report: Report) -> Completed:
    """Swallows everything, and never looks up before there is a file `config.until`."""
    while not Path(request.config["until"]).exists():
        try:
            time.sleep(0.05)
        except BaseException:
            continue
    try:
        report.log("a late word")
    except Exception:  # that it is cancelled does not interest it
        pass
    return Completed("a late result")


async def asynchronous(request: Request, report: Report) -> Completed:
    await asyncio.sleep(0.01)
    return Completed(f"async: {request.task}")


def talker(request: Request, report: Report) -> Completed:
    """Streams its answer in pieces."""
    words = [f"word{index} " for index in range(int(request.config.get("words", 200)))]
    for word in words:
        report.chunk(word)
        time.sleep(0.002)
    return Completed("".join(words))


def asks(request: Request, report: Report) -> Outcome:
    """Asks for a colour first."""
    if not request.inputs:
        return NeedsInput("Which colour?", {"type": "string"})
    return Completed(f"painted {request.inputs[-1]['answer']}")


def careful(request: Request, report: Report) -> Outcome:
    """Deletes a file (it writes down how often) only with a person's leave for exactly that call."""
    call = {"path": request.config.get("path", "x"), "force": True}
    if not report.approved("delete_file", call):
        return NeedsApproval("delete_file", call, "May I delete it?")
    with Path(request.config["journal"]).open("a") as journal:
        journal.write(f"{os.getpid()}\n")
    return Completed("deleted")


def broken(request: Request, report: Report) -> Completed:
    raise ValueError("a secret inside")


def refuses(request: Request, report: Report) -> Failed:
    return Failed("not_found", "There is no such file.")


def leaks(request: Request, report: Report) -> Completed:
    report.tool_call("c1", "login", {"user": "me", "password": "hunter2hunter2"})
    report.log("Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345")
    report.tool_result(
        "c1", "login", {"api_key": "sk-abcdefghijklmnopqrstuvwxyz", "nul": "a\0b", "deep": [[[1]]], "big": 10**30}
    )
    return Completed("ok")


def journal(request: Request, report: Report) -> Completed:
    """Writes one line into `config.journal` per call."""
    with Path(request.config["journal"]).open("a") as file:
        file.write(f"{request.trace_id} {request.attempt}\n")
    time.sleep(float(request.config.get("seconds", 0)))
    report.check()
    return Completed("written")
