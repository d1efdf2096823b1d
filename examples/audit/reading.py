"""Reading a module's text as the interpreter would: with the encoding that the file declares (PEP 263)."""

import io
import stat
import tokenize
from pathlib import Path

from .models import Source
from .syntax import printable

MAX_SOURCE_BYTES = 2 * 1024 * 1024
"""Larger files are generated tables, not code that people read; the largest of the standard library has 0.3 MB."""

_SNIFFED_BYTES = 8192


def read_source(path: str) -> Source:
    """Read and decode one file. What cannot be read comes back as `Source.error`; OSError does not escape.

    A problem of the file is a fact about it, which a retry does not change; so it is data and not an exception.
    """
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would block
            return Source(path, "", "is not a regular file")
        with Path(path).open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure)
        return Source(path, "", f"cannot be opened: {printable(reason)}")
    return _decoded(path, content)


def _decoded(path: str, content: bytes) -> Source:
    if len(content) > MAX_SOURCE_BYTES:
        return Source(path, "", f"is too large: the limit is {MAX_SOURCE_BYTES} bytes")
    if b"\0" in content[:_SNIFFED_BYTES]:
        return Source(path, "", "is binary: it contains NUL bytes")
    try:
        # Not tokenize.open: its errors name the absolute path, which means nothing to the reader of a report.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = io.TextIOWrapper(io.BytesIO(content), encoding).read()
        text.encode()  # encodings such as UTF-7 can produce lone surrogates, which no JSON text carries
    except UnicodeEncodeError as failure:
        return Source(path, "", f"contains a character that is no Unicode text at offset {failure.start}")
    except UnicodeDecodeError as failure:
        return Source(path, "", f"cannot be decoded: byte {failure.start} is not valid {failure.encoding}")
    except (SyntaxError, LookupError, ValueError) as failure:
        return Source(path, "", f"cannot be decoded: {printable(str(failure))}")
    return Source(path, text)
