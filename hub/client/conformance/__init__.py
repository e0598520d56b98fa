"""Checks any server against the wire contract, black box: `python -m hub.client.conformance URL`."""
