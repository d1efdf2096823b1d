"""Encryption at rest of states and results of steps: Fernet tokens, written with the newest key, read with any."""

from __future__ import annotations

import functools
from typing import Protocol

from ..topics.config import BrokerSettings
from ..topics.errors import InvalidInput
from .errors import CheckpointKeyMissing

_HOW = (
    "make one with `python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'`, and "
    "give several separated by commas, the newest first"
)


class _Keys(Protocol):
    def encrypt(self, msg: bytes) -> bytes: ...
    def decrypt(self, msg: bytes) -> bytes: ...


class Cipher:
    """Encrypts with the newest of the configured keys and decrypts with each of them."""

    def __init__(self, keys: _Keys, mismatch: type[Exception]) -> None:
        self._keys, self._mismatch = keys, mismatch

    @classmethod
    def of(cls, settings: BrokerSettings) -> Cipher | None:
        """The cipher of an installation; None when no key is configured. Raises InvalidInput for keys that are none, or
        when the library is not installed."""
        secret = settings.checkpoint_keys
        keys = [key.strip() for key in secret.get_secret_value().split(",") if key.strip()] if secret else []
        return _cipher(tuple(keys)) if keys else None

    @classmethod
    def with_keys(cls, keys: tuple[str, ...]) -> Cipher:
        """The cipher of these keys. Raises as `of` does."""
        try:
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet
        except ImportError as error:
            raise InvalidInput(
                "CALLBOARD_CHECKPOINT_KEYS is set and the library for it is not installed: "
                "pip install 'callboard[encryption]'"
            ) from error
        try:
            return cls(MultiFernet([Fernet(key) for key in keys]), InvalidToken)
        except ValueError as error:
            raise InvalidInput(f"CALLBOARD_CHECKPOINT_KEYS holds what is no Fernet key: {_HOW}") from error

    def seal(self, data: bytes) -> bytes:
        """The data as a token of URL-safe base64, about 4/3 as long and 100 bytes."""
        return self._keys.encrypt(data)

    def open(self, token: bytes) -> bytes:
        """What a token holds. Raises CheckpointKeyMissing when none of the keys has written it."""
        try:
            return self._keys.decrypt(token)
        except self._mismatch as error:
            raise CheckpointKeyMissing(
                "this value is encrypted with none of the keys in CALLBOARD_CHECKPOINT_KEYS: add the "
                "key it was written with, after the newest"
            ) from error

    @staticmethod
    def opened(cipher: Cipher | None, token: bytes) -> bytes:
        """`cipher.open`. Raises CheckpointKeyMissing also when there is no cipher."""
        if cipher is None:
            raise CheckpointKeyMissing(
                "this value is encrypted, and this process has no key: set CALLBOARD_CHECKPOINT_KEYS"
            )
        return cipher.open(token)


@functools.lru_cache(maxsize=8)
def _cipher(keys: tuple[str, ...]) -> Cipher:
    return Cipher.with_keys(keys)
