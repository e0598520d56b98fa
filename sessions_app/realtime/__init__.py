"""The one delivery path: who is connected to this process, where each stands, and how it learns what was committed."""
