"""One call from data to finished runs.

train   one run: trained, evaluated, compared, saved, reported     seeds   several that differ in their seed alone
"""
