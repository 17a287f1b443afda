"""Sites: where the installed compiler may rewrite a program, determined from torch at run time."""
