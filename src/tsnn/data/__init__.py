"""Event streams: where they come from, how they are split, and what is sampled against them."""
