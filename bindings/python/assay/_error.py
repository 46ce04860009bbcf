"""The one exception of the package."""

from __future__ import annotations

from typing import Tuple, Type


class Error(Exception):
    """What came from outside and cannot be served. Its text says which thing, what was needed and what was found; `code` is one of "bad_file",
    "unsupported", "out_of_memory", "bad_request", "io" and "device"."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> Tuple[Type[Error], Tuple[str, str]]:
        return type(self), (self.args[0], self.code)
