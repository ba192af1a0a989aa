"""Rewards from comparisons of pieces of episodes (Christiano et al., arXiv 1706.03741).

fragments    pieces of episodes, all of one length
preferences  the likelihood of a label, and labels of a program
queries      how many comparisons a round, and which: where the members of an ensemble disagree
fitting      reward nets fitted to labels
reward       the result as a reward source, kind `trajectory_reward`
"""
