"""The paper's formal statements (app:proofs), one function each, checked on given tensors."""
