"""The pages: those of plain HTML, and the label page."""
