"""The planner: a request becomes a tree of goals with bounded tool calls, without a model. Pure: no Django, no network."""
