"""A2A both ways: every agent on the hub has an A2A address, and any A2A agent can be a participant.

`addresses` and `http` guard every connection that somebody else's URL makes us open.
"""
