"""The server of processes imports this last: it then ends at once.

To tear down an interpreter with torch takes a second, during which the server keeps the standard
output of a command open. The server has no files and no threads to clean up.
"""

import atexit
import os

atexit.register(os._exit, 0)
