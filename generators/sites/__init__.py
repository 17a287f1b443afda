"""Places at which the installed compiler may rewrite a program, read from it at run time."""
