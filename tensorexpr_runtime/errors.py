"""What may go wrong: a bundle that is not to be used, arguments that do not fit, an index out of bounds."""


class BundleError(Exception):
    """A bundle that is damaged, incomplete, of another version, or made for other machines; the message says which."""


class ArgumentError(ValueError):
    """An argument that does not fit the function."""


class OutOfBoundsError(ArgumentError, IndexError):
    """A data-dependent index that left its tensor while a function ran; also an `IndexError`."""
