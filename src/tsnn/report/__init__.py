"""The report of a run, and of several side by side.

source    the data behind a run                 trace     what the figures show of a replay of the stream
view      what a report knows of a run          figures   drawings, as inline SVG
page      the sections, put together into one HTML file that needs nothing else
"""
