"""How a cell of the matrix ends when it does not pass."""


class Failed(Exception):
    """Something is not as it should be. The message is one line."""


class Skipped(Exception):
    """It cannot be tried here. The message is the reason."""


def check(condition, line):
    """Ends the cell unless something holds."""
    if not condition:
        raise Failed(line)
