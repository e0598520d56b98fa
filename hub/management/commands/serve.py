"""`manage.py serve`: the embedded hub."""

from __future__ import annotations

import socket
import sys
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from hub.embedded.environment import add_arguments
from hub.embedded.first_start import FirstStart, first_start


class Command(BaseCommand):
    help = "Run the whole hub under one command: web server and worker, SQLite in --data, no Redis."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        self._require_free(host, port)
        call_command("migrate", verbosity=0, skip_checks=True)
        news = first_start()
        # Imported here: it installs the reactor, which belongs to the process that serves.
        from hub.asgi import application
        from hub.embedded.worker import WorkerChild
        from hub.server import HubServer

        interface = host.replace(":", r"\:")
        server = HubServer(
            application=application,
            endpoints=[f"tcp:port={port}:interface={interface}"],
            ready_callable=lambda: self._greet(host, port, news),
            signal_handlers=True,
        )
        worker = WorkerChild()
        worker.start()
        try:
            server.run()
        finally:
            worker.stop()
        self.stdout.write("Stopped.")

    def _require_free(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise CommandError(f"Can't listen on {host}:{port}: {error.strerror}. Try --port.") from None

    def _greet(self, host: str, port: int, news: FirstStart | None) -> None:
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        lines = [f"Session Hub is serving at {address}", f"  data      {settings.HUB_DATA_DIR}"]
        lines.append(f"  admin     {address}/admin/")
        lines.append(f"  API       {address}/api/docs   (contract: protocol 1)")
        lines.append(f"  roots     {', '.join(settings.HUB_ROOTS) or 'none: built-in tools may read nothing'}")
        if news is not None:
            lines += ["", "First start. These are shown once:"]
            lines.append(f"  login     {news.username} / {news.password}")
            lines += [f"  agent     {agent_id}   {key}" for agent_id, key in news.keys.items()]
            lines.append("  (more: manage.py agent create ID; manage.py agent key ID)")
        lines += ["", "Ctrl-C stops it."]
        self.stdout.write("\n".join(lines))
        sys.stdout.flush()
