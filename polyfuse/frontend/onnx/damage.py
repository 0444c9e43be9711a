"""Say at which byte a file stops being a model.

    message ::= (tag value)*      tag = 8 * field + kind, a varint
    value   ::= varint (kind 0) | 8 bytes (1) | length bytes (2) | 4 bytes (5)

Encoding, Protocol Buffers Documentation, https://protobuf.dev/programming-guides/encoding. The decoder itself says only
that it failed.
"""

from __future__ import annotations

from typing import Any

FIXED = {1: 8, 5: 4}
"""The bytes of values of fixed size, by kind."""


class _Damage(Exception):
    """Where a message is damaged."""


def damage(data: bytes, kind: Any) -> str | None:
    """Return what is wrong with a message, and at which byte.

    Args:
        data: The message.
        kind: Its descriptor, such as `onnx.ModelProto.DESCRIPTOR`.

    Returns:
        The place and the fault; None if fields and lengths are as they should be.
    """
    try:
        _message(data, 0, len(data), kind, str(kind.name))
    except _Damage as found:
        return str(found)
    return None


def _message(data: bytes, at: int, end: int, kind: Any, path: str) -> None:
    counts: dict[str, int] = {}
    while at < end:
        start = at
        tag, at = _varint(data, at, end, path)
        number, form = tag >> 3, tag & 7
        field = kind.fields_by_number.get(number)
        name = field.name if field is not None else f"field {number}"
        count = counts[name] = counts.get(name, -1) + 1
        here = f"{path}.{name}" + (f"[{count}]" if field is not None and field.is_repeated else "")
        if not number or form not in (0, 2, *FIXED):
            raise _Damage(f"at byte {start} of {len(data)}, in {path}, no field begins")
        if form == 0:
            _, at = _varint(data, at, end, here)
            continue
        length = FIXED.get(form)
        if length is None:
            length, at = _varint(data, at, end, here)
        if at + length > end:
            whose = "file" if end == len(data) else f"part around it, {path},"
            raise _Damage(
                f"{here} at byte {start} of {len(data)} says that it has {length} bytes, and the {whose} has {end - at}"
            )
        if form == 2 and field is not None and field.message_type is not None:
            _message(data, at, at + length, field.message_type, here)
        at += length


def _varint(data: bytes, at: int, end: int, path: str) -> tuple[int, int]:
    """A number of 7 bits a byte, and the byte after it."""
    found = 0
    for position in range(at, min(end, at + 10)):
        found |= (data[position] & 0x7F) << 7 * (position - at)
        if data[position] < 0x80:
            return found, position + 1
    raise _Damage(f"the number at byte {at} of {len(data)}, in {path}, has no end")
