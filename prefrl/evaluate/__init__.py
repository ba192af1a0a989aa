"""What came out: run folders, statistics, reward quality, figures and reports."""
