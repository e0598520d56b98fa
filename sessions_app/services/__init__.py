"""What can be done to sessions and agents: verbs, keyword-only, one unit of work each; every door calls these."""
