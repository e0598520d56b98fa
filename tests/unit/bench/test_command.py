"""`manage.py bench` where nothing but the hub is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in ("picows", "psutil"):
    sys.modules[name] = None  # what is None there can't be imported
from hub.bench import systems
systems.is_installed = lambda name: name not in ("picows", "psutil")
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


@pytest.mark.parametrize("arguments", [["bench", "w1"], ["bench", "--help"]])
def test_without_the_tools_of_development_it_says_what_to_run(arguments: list[str]) -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    if "--help" in arguments:
        assert (done.returncode, "w1…w8" in done.stdout) == (0, True)
    else:
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            "CommandError: It measures with picows and psutil, which a hub does not need: run `make bench`, which installs it."
        )
