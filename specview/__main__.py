"""`python -m specview` is the `specview` command."""

from specview.cli import main

if __name__ == "__main__":
    main(prog_name="specview")
