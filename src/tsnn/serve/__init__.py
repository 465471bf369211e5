"""The live service: HTTP, the durable event log, snapshots, metrics and the page around one predictor."""
