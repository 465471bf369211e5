"""Who acts next: the rate of every source, fitted beside the model, which says on whom."""
