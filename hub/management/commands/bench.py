"""`manage.py bench`: W1–W5, W7 and W8 against the hub and the baselines, on this machine, in this run."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from hub.bench import report, systems
from hub.bench.figures import Figures, expand

if TYPE_CHECKING:
    from hub.bench import runner


class Command(BaseCommand):
    help = "Measure the hub beside a raw relay, a bare Channels relay and the tutorial chat, in temporary data."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workloads", nargs="*", metavar="w1…w8", help="which workloads (default: all)")
        parser.add_argument(
            "--quick", action="store_true", help="one short repetition: shows that it runs, not how fast"
        )
        parser.add_argument(
            "--server", choices=systems.SERVERS, default="daphne", help="the ASGI server under all systems"
        )
        parser.add_argument("--systems", nargs="+", choices=list(systems.SYSTEMS), default=systems.default_systems())
        parser.add_argument("--repetitions", type=int, default=3, help="medians are of so many (default 3)")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples there, too")

    def handle(self, *args: Any, **options: Any) -> None:
        if missing := [name for name in systems.TOOLS if not systems.is_installed(name)]:
            raise CommandError(
                f"It measures with {' and '.join(missing)}, which a hub does not need: run `make bench`, which installs it."
            )
        from hub.bench import runner  # made of those tools

        server: str = options["server"]
        if not systems.is_installed(server):
            raise CommandError(f"{server} is not installed here: pip install {server}")
        try:
            workloads = expand(options["workloads"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        chosen = runner.Options(
            workloads=workloads,
            systems=options["systems"],
            server=server,
            repetitions=max(1, options["repetitions"]),
        )
        if options["quick"]:
            chosen = msgspec.structs.replace(
                chosen,
                repetitions=1,
                seconds=0.4,
                warm_seconds=0.1,
                backlog=2_000,
                idle_sockets=200,
                histories=(1_000, 10_000),
            )
        try:
            samples, commit_ms = runner.run(chosen, self.stderr.write)
        except RuntimeError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            options["json"].write_bytes(msgspec.json.format(msgspec.json.encode(samples)))
        self._print(chosen, Figures(samples, commit_ms=commit_ms), quick=options["quick"])

    def _print(self, options: runner.Options, figures: Figures, *, quick: bool) -> None:
        from hub.bench import runner
        from hub.bench.workloads import DESCRIPTIONS

        counted = dict.fromkeys(name for name in DESCRIPTIONS if any(w.startswith(name) for w in options.workloads))
        self.stdout.write(f"{runner.machine()}; {options.server}; medians of {options.repetitions}.")
        for name in counted:
            self.stdout.write(f"{name.upper()}: {DESCRIPTIONS[name]}")
        if quick:
            self.stdout.write(
                f"QUICK: one short repetition, W4 with {options.backlog:,} messages, W5 with {options.idle_sockets:,} sockets."
            )
        self.stdout.write("")
        # The goals are set for the full sizes.
        self.stdout.write(report.render(figures, systems.ROW_TITLES, options.server, with_goals=not quick))
        if figures.problems():
            raise CommandError("some figures are not to be trusted: see PROBLEM above")
