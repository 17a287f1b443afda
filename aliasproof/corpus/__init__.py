"""Corpus: known bugs of compilers. `bug_files` reads them from `bugs`, one text file each."""
