"""`make demo`: the seed's conversation, held by two processes about a real directory, watched and checked by a third."""
