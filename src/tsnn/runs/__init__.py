"""One call from data to runs with their reports.

train   one run     seeds   several that differ in their seed alone
"""
