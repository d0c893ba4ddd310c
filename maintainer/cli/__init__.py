"""The command line: commands, output formats and exit codes; no logic of its own."""
