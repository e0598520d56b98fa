"""WebSockets: thin consumers over the delivery path."""
