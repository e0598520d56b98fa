"""`manage.py demo`: two agents talk about a real directory, and what they say is checked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hub.demo.stage import DemoFailed, judge, perform
from hub.demo.weather_stage import perform_weather

BASE = Path(__file__).resolve().parents[3]


class Command(BaseCommand):
    help = (
        "Hold the seed's conversation between a cloud agent and a terminal agent about a real directory, and check it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dir", default=str(BASE), help="the directory they talk about (this repository)")
        parser.add_argument(
            "--demo",
            choices=["project", "weather"],
            default="project",
            help="project: two agents about a directory; weather: a main agent and three others, as in the first seed",
        )
        parser.add_argument(
            "--scripted-model", action="store_true", help="weather: the main agent asks a (local, scripted) model"
        )
        parser.add_argument("--lang", choices=["zh", "en"], default="zh", help="zh, as in the seed, or en")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["demo"] == "weather":
                good = asyncio.run(perform_weather(BASE, self.say, scripted=options["scripted_model"]))
            else:
                good = self._about_a_project(options)
        except DemoFailed as failed:
            raise CommandError(f"The demo failed: {failed}") from None
        self.say("Checked:")
        for line in good:
            self.say(f"  + {line}")

    def _about_a_project(self, options: dict[str, Any]) -> list[str]:
        root = Path(options["dir"]).expanduser().resolve()
        if not root.is_dir():
            raise CommandError(f"{root} is not a directory.")
        heard = asyncio.run(perform(root, options["lang"], BASE, self.say))
        return judge(heard, root, options["lang"])

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
