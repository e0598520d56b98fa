"""The executor `orchestrator`: the main agent of a session, which has its other agents answer."""
