"""The head of a GGUF file: what it says of itself, and where its tensors lie. Version 3, little-endian."""

import dataclasses
import math
import mmap
import struct

ALIGNMENT = 32
NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by type of value
STRING, ARRAY = 8, 9
# Types of tensors by name: id, elements and bytes of a block.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}
NAMES = {number: name for name, (number, _, _) in TYPES.items()}


@dataclasses.dataclass
class Tensor:
    name: str
    shape: list  # [inputs, outputs]: the innermost dimension first
    type: str
    data: object = None  # bytes of the file

    @property
    def elements(self):
        return math.prod(self.shape)

    @property
    def bytes(self):
        _, block_elements, block_bytes = TYPES[self.type]
        return self.elements // block_elements * block_bytes


class Cursor:
    def __init__(self, data):
        self.data, self.place = data, 0

    def number(self, layout):
        value, = struct.unpack_from("<" + layout, self.data, self.place)
        self.place += struct.calcsize("<" + layout)
        return value

    def string(self):
        length = self.number("Q")
        self.place += length
        return self.data[self.place - length:self.place].decode(errors="replace")

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            if element in NUMBER_BYTES:
                self.place += count * NUMBER_BYTES[element]
                return
            for _ in range(count):
                self.skip_value(element)
        else:
            self.place += NUMBER_BYTES[kind]


def read(path):
    """The values of a file, as they are stored: type and value; and its tensors."""
    with open(path, "rb") as file:
        cursor = Cursor(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    cursor.place = 8  # magic, version
    tensor_count, value_count = cursor.number("Q"), cursor.number("Q")
    values, tensors = {}, []
    for _ in range(value_count):
        name, begin = cursor.string(), cursor.place
        cursor.skip_value(cursor.number("I"))
        values[name] = cursor.data[begin:cursor.place]
    for _ in range(tensor_count):
        name = cursor.string()
        shape = [cursor.number("Q") for _ in range(cursor.number("I"))]
        tensors.append((Tensor(name, shape, NAMES[cursor.number("I")]), cursor.number("Q")))
    data = aligned(cursor.place)
    for tensor, offset in tensors:
        tensor.data = memoryview(cursor.data)[data + offset:data + offset + tensor.bytes]
    return values, [tensor for tensor, _ in tensors]


def aligned(place):
    return -(-place // ALIGNMENT) * ALIGNMENT


def packed(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write(path, values, tensors):
    """Writes what read() returns; `data` of a tensor may be a function that makes it."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values))
    head += b"".join(packed(name) + value for name, value in values.items())
    offset = 0
    for tensor in tensors:
        head += packed(tensor.name) + struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        head += struct.pack("<IQ", TYPES[tensor.type][0], offset)
        offset = aligned(offset + tensor.bytes)
    unfinished = path.with_suffix(".part")
    with open(unfinished, "wb") as file:
        file.write(head.ljust(aligned(len(head)), b"\0"))
        for tensor in tensors:
            data = tensor.data() if callable(tensor.data) else tensor.data
            assert len(data) == tensor.bytes, tensor.name
            file.write(bytes(data).ljust(aligned(tensor.bytes), b"\0"))
    unfinished.rename(path)
