"""A2A both ways. `addresses` and `http` guard every connection that somebody else's URL makes us open."""
