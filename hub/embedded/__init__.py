"""The embedded hub: everything under one command, SQLite in one directory, no Redis, no second terminal."""
