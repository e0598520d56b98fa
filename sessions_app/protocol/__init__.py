"""The wire contract as code: frames, bodies, error codes and ids. Pure: no Django, no I/O."""
