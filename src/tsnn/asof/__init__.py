"""What was known at a time: facts, states and scores as of any moment, and small models of other people's on them.

sheet   what is asked, and what stands beside the answers     facts   the table of answers, in memory or in a file
label   heads that tell labels of events from them
"""
