"""The modes, one verb each: what the commands do, from values and files to a report."""
