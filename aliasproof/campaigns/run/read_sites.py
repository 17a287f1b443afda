"""Reads the sites of the installed torch, when it is imported.

The server imports it that workers are forked from. So the passes of Inductor run once to be read,
and not in each worker, where it would take two seconds of a minute or two.
"""

from aliasproof.generators.sites.all_sites import all_sites

all_sites()
