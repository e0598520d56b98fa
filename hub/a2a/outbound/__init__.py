"""Remote A2A agents as participants: their cards, and the executor `a2a` that runs traces on them."""
