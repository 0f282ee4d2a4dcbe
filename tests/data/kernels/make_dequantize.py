"""Writes dequantize.bin: stored blocks and their values by the `gguf` package.

    python3 make_dequantize.py OUT [MODEL.gguf ...]

For each storage type: random blocks (every byte value, scales of all sizes), and the first blocks of
a tensor of that type in the given files. Record: type name (8 bytes, zero padded), uint32 elements,
uint32 bytes, the bytes, the float32 values; little endian.
"""

import struct
import sys

import numpy as np
from gguf import GGUFReader, GGMLQuantizationType as T
from gguf.quants import dequantize

# block size, bytes, places of float16 fields
FORMATS = {
    "F16": (1, 2, []), "BF16": (1, 2, []), "Q8_0": (32, 34, [0]), "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]), "Q4_K": (256, 144, [0, 2]), "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
}


def random_blocks(rng, name):
    block, size, halves = FORMATS[name]
    count = 64 if block == 1 else 12 if block == 32 else 3
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if not halves:  # the element itself: finite
        x = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 4, count)).astype(np.float32)
        bits = x.astype(np.float16).view(np.uint16) if name == "F16" else (x.view(np.uint32) >> 16)
        return bits.astype("<u2").view(np.uint8).reshape(count, 2)
    for at in halves:
        scale = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 2, count)).astype("<f2")
        data[:, at:at + 2] = scale.view(np.uint8).reshape(count, 2)
    return data


def write(out, name, data):
    values = np.ascontiguousarray(dequantize(data, T[name]), dtype="<f4").reshape(-1)
    raw = np.ascontiguousarray(data).tobytes()
    out.write(name.encode().ljust(8, b"\0") + struct.pack("<II", values.size, len(raw)))
    out.write(raw + values.tobytes())


def main():
    rng = np.random.default_rng(1)
    with open(sys.argv[1], "wb") as out:
        for name in FORMATS:
            write(out, name, random_blocks(rng, name))
        seen = set()
        for path in sys.argv[2:]:
            for t in GGUFReader(path).tensors:
                name = t.tensor_type.name
                if name not in FORMATS or name in seen:
                    continue
                seen.add(name)
                size = FORMATS[name][1]
                flat = t.data.view(np.uint8).reshape(-1)
                write(out, name, flat[:size * min(4, flat.size // size)].reshape(-1, size))


main()
