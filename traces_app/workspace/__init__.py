"""Pure tools that read a project inside allowed roots: standard library only, nothing is ever executed or written."""
