"""The command `hub`: for people and programs that talk to a hub over the wire contract."""


def main() -> None:
    """The console script; the libraries for terminals are imported only here."""
    from hub.cli.app import run

    run()
