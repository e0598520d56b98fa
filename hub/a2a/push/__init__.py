"""Push notifications: what happens to a task, told to an address that its client gave. At least once, in order, signed."""
