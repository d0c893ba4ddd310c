"""`python -m maintainer`."""

from maintainer.cli.main import main

main()
