"""The paper's formal statements, one function each, checked on given tensors (app:proofs).

frames      lem:low_rank, lem:houshlip, eq:smooth_lipschitz, rem:houshlip, prop:carry_over
transport   lem:flat_transport, prop:sync_equiv, cor:spectral_equivalence
diffusion   thm:energy, thm:feature_scaled, cor:energy_descent, thm:nonexpansive, rem:spectral_bound
drift       thm:stale, rem:drift_control
scope       prop:psi_equiv
wl          prop:twl
"""
