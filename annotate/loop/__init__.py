"""The Loop page: rounds of labels, reward model and policy, and the single jobs that they are made of."""
