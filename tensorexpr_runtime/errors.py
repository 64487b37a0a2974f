"""What may go wrong: a bundle that is not to be used, arguments that do not fit, an index out of bounds."""


class BundleError(Exception):
    """A bundle that is damaged, incomplete, of another version, or made for other machines; the message says which."""


class ArgumentError(ValueError):
    """An argument that does not fit the function."""


class OutOfBoundsError(ArgumentError, IndexError):
    """A data-dependent index that left its tensor while a function ran; also an `IndexError`."""


def wanted_extent(form: str, scale: int, constant: int, alone: bool) -> str:
    """What an extent has to be that is printed as `form`: `scale` times a size from 0 on (`alone`), plus a constant."""
    if not alone or constant < 0 or constant % scale:
        return f"an extent of the form {form}"
    if scale == 1:
        return f"an extent of at least {constant} ({form})"
    return f"a multiple of {scale}{f' from {constant} on' if constant else ''} ({form})"
