"""Django's SQLite backend with one change; named by `ENGINE` in the settings."""
