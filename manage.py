#!/usr/bin/env python
"""Django's command line with this project's settings."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run one management command; its exit code is the process's."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hub.settings")
    if sys.argv[1:2] == ["serve"]:  # its options decide what the settings read
        from hub.embedded.environment import prepare

        prepare(sys.argv[2:], Path(__file__).resolve().parent)
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit("Django is not installed here. Run `make setup`, then .venv/bin/python manage.py …") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
