"""The report of a run, and of several side by side.

source    the data behind a run                 replay    one pass over the stream that keeps what the figures show
view      what a report knows of a run          figures   drawings, as inline SVG
page      the sections, put together into one HTML file that needs nothing else
"""
