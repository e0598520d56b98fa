"""The hub's settings for tests inside pytest's process: data of its own, a database file that threads can share.

Processes that tests start take `hub.settings` itself, configured by their environment (see `tests/hubs.py`).
"""

import atexit
import os
import shutil
import tempfile

if "HUB_DATA_DIR" not in os.environ:
    # Before the import below: the settings make their secret key there. Never the developer's own .hub.
    os.environ["HUB_DATA_DIR"] = tempfile.mkdtemp(prefix="hub-tests-")
    atexit.register(shutil.rmtree, os.environ["HUB_DATA_DIR"], ignore_errors=True)

from hub.settings import *  # noqa: F403
from hub.settings import DATABASES, HUB_DATA_DIR

if DATABASES["default"]["ENGINE"] == "hub.sqlite":
    # Django's default for tests is a database in memory, which the writer's and the readers' own connections can't see.
    DATABASES["default"]["TEST"] = {"NAME": str(HUB_DATA_DIR / "test.sqlite3")}

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# No thread of the hub's sweeps under a test that looks at single steps; processes that tests start do sweep.
HUB_TRACE_KEEPER = False
