"""The pages of those who run a project: Manage and Loop."""
