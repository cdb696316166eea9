"""Errors that may pass: a full disk, a network or a service that is away.

Whoever meets one ends with os.EX_TEMPFAIL (75), and the same command may succeed later. The payload
and the head's queue share this: the link head/may_pass.py puts this file into the head's package.
It needs only the standard library.
"""

import errno
import socket

ERRNOS = {
    # The machine has no more of something.
    *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    errno.EIO,
    # The network.
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN),
}


def may_pass(error: BaseException) -> bool:
    """Whether the same try may succeed later, without a change of its input."""
    # Ray's error of another process has the original as its cause.
    while isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause
    if isinstance(error, BrokenPipeError):  # A simulator has crashed.
        return False
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return True
    return isinstance(error, OSError) and error.errno in ERRNOS
