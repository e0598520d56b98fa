"""The client's decisions as plain objects: no socket, no clock, no loop. The shell around them does what they say."""
