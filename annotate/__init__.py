"""The labelling app: people as a reward source."""
