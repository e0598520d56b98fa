"""Who gets to know what, in which form, and who decided that.

profiles    what a participant may get; `View.show` makes a message into what its reader sees of it (pure)
shared      a session's shared context, and whose words stand under each of its keys (pure)
viewing     the views of participants, and messages read through them
words       tokens of text in any language, and what they cost (pure)
fences      an injected remark that can't pose as an instruction (pure)
parts       typed, versioned parts and their registry (pure)
relevance   BM25 over what is visible
choosing    which messages a question takes along, by whom that was decided, and why
ledger      what an agent has been given: reserved, seen, released, reset
extracts    extractive summaries (pure)
summaries   rolling summaries beside the messages, keyed by who may see them
histories   agents' own histories, and what of them goes to a model
strategies  embedded, per_agent, shared: the exact parts of a question
deliveries  prepare, delivered, failed, forgotten: the life of one question to one agent
selectors   what the doors show of it
"""
