"""Orthogonal frames, transport between them and diffusion over an event's active graph."""
