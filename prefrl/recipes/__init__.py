"""One story a file: each `run(config)` reads top to bottom and leaves a run folder."""
