"""What the official A2A compatibility kit needs of a hub: an agent that knows its message ids, and a key it does not send."""
