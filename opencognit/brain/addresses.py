"""Whether a word is a coin address: Bitcoin by its checksum, Ethereum by its form. Pure.

Base58Check as in Bitcoin's first release; bech32 and bech32m by BIP 173 and BIP 350.
"""

from __future__ import annotations

import hashlib
import re

_BASE58 = {char: value for value, char in enumerate("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")}
_BECH32 = {char: value for value, char in enumerate("qpzry9x8gf2tvdw0s3jn54khce6mua7l")}
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_PAY_TO_HASH = (0x00, 0x05)
"""Base58Check's version bytes of an address: to a public key's hash, to a script's hash."""
_BECH32_CHECK, _BECH32M_CHECK = 1, 0x2BC830A3
_ETHEREUM = re.compile(r"0[xX][0-9a-fA-F]{40}")
_SEGWIT = re.compile(r"bc1[02-9ac-hj-np-z]{11,87}")


def coin_address(text: str) -> str | None:
    """Return the address in its one spelling, None for what is none. Base58 keeps its case: it means something there."""
    if _ETHEREUM.fullmatch(text):
        return text.lower()
    lower = text.lower()
    if text in (lower, text.upper()) and _SEGWIT.fullmatch(lower):
        return lower if _is_segwit(lower) else None
    return text if _is_base58check(text) else None


def _is_base58check(text: str) -> bool:
    if not 26 <= len(text) <= 35 or any(char not in _BASE58 for char in text):
        return False
    number = 0
    for char in text:
        number = number * 58 + _BASE58[char]
    if number >= 1 << 200:
        return False
    raw = number.to_bytes(25, "big")
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    ones = len(text) - len(text.lstrip("1"))
    digest = hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()
    return raw[0] in _PAY_TO_HASH and digest[:4] == raw[21:] and zeros == ones


def _is_segwit(text: str) -> bool:
    """Check the sum, which depends on the witness version, and the length of the program."""
    values = [_BECH32[char] for char in text[3:]]
    version, program_bits = values[0], 5 * (len(values) - 7)
    size, padding = divmod(program_bits, 8)
    wanted = _BECH32_CHECK if version == 0 else _BECH32M_CHECK
    sizes = (20, 32) if version == 0 else range(2, 41)
    is_padded = padding < 5 and values[-7] & ((1 << padding) - 1) == 0
    return version <= 16 and size in sizes and is_padded and _checksum(values) == wanted


def _checksum(values: list[int]) -> int:
    """Return the BCH code's remainder of `bc` and these values."""
    prefix = [ord(char) >> 5 for char in "bc"] + [0] + [ord(char) & 31 for char in "bc"]
    sum_ = 1
    for value in prefix + values:
        top = sum_ >> 25
        sum_ = (sum_ & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            sum_ ^= generator if top >> bit & 1 else 0
    return sum_
