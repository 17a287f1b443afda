"""Files of other tools, as programs: graphs as JSON or as torch prints them, exported programs."""
