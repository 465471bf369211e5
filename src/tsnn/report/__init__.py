"""The report of a run, and of several side by side.

trace   what the figures show of a replay of the stream     view    what a report knows of a run
figures drawings, as inline SVG                             page    one HTML file that needs nothing else
"""
