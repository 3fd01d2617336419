"""The losses in the event files of a run."""
import struct


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Of a message of protocol buffers: number and value, bytes or a number."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            length, at = {1: (8, at), 5: (4, at)}.get(key & 7) or varint(data, at)
            value = data[at:at + length]
            at += length
        yield key >> 3, value


def losses(run):
    """Step and loss of every update of all processes that trained into the folder, in order; a file may end in the middle."""
    found = []
    for path in sorted(run.glob("events.*"), key=lambda p: p.stat().st_mtime_ns):
        data, at = path.read_bytes(), 0
        while at + 12 <= len(data):
            length = struct.unpack_from("<Q", data, at)[0]
            event, at = data[at + 12:at + 12 + length], at + 16 + length
            if at > len(data):
                break
            parts = dict(fields(event))
            for _, value in fields(parts.get(5, b"")):
                scalar = dict(fields(value))
                if scalar.get(1) == b"loss" and 2 in scalar:
                    found.append((parts.get(2, 0), scalar[2]))
    return found
