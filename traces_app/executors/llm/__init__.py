"""The executor `llm`: a model with the hub's tools. Nothing in here imports the model library before a run needs it."""
