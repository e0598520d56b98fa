"""Small projects on disk for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from traces_app.workspace.project import Project
from traces_app.workspace.python_project import scan
from traces_app.workspace.roots import Roots


def plant(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes the files below `root`, which is made; answers `root`."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def scanned(root: Path, files: Mapping[str, str | bytes], path: str = ".") -> Project:
    return scan(Roots([plant(root, files)]), path)


SHOP: Mapping[str, str] = {
    "README.md": "<img src=x>\n\n# The shop\n\nText.\n",
    "pyproject.toml": '[project]\nname = "shop"\n\n[project.scripts]\nshop = "core.main:run"\n',
    "manage.py": 'import core\n\nif __name__ == "__main__":\n    core.run()\n',
    "core/__init__.py": '"""The heart of the shop."""\nVERSION = 1\n\n\ndef run():\n    pass\n',
    "core/views.py": "from . import services\n\n\ndef show():\n    return services.load()\n",
    "core/services.py": "from core.models import Item\nimport requests\n\n\ndef load():\n    return Item()\n",
    "core/models.py": (
        'class Item:\n    """A thing for sale."""\n\n    def price(self):\n        return 1\n\n'
        "    def _secret(self):\n        pass\n"
    ),
    "api/__init__.py": "from core import views\n",
    "api/client.py": "import core.services\nfrom api import server\n",
    "api/server.py": "def serve():\n    import api.client\n",
    "utils/__init__.py": "",
    "utils/a.py": "from utils import b\n",
    "utils/b.py": "import utils.a\n",
    "tests/test_core.py": "from core.models import Item\n\n\ndef test_price():\n    assert Item().price() == 1\n",
}
"""Three packages: `core` has views over services over models, `utils` imports itself in a circle."""
