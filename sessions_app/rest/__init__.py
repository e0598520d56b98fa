"""The conversation over HTTP: `/api/a2a/…`. DRF views for what is not hot, async views for send, history and waits."""
