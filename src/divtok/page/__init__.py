"""One page that shows why: responses with their tokens, and what a threshold makes of them.

`data` says what a page is told, `write` puts it into one file with its style and script. The script
is plain JavaScript in a few files, read in the order of `write.SCRIPTS`. Where responses come from,
a run or a server, is not known here.
"""
