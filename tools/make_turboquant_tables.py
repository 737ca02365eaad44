#!/usr/bin/env python3
"""Writes src/kernels/cpu/encodings/turboquant_tables.inl: the constants of TurboQuant.

Needs numpy and MLX for Python (0.32), whose random numbers define them:
  signs      1 - 2 * randint(0, 2, [dim], key 42), for each head dimension
  centroids  2, 4, 5 and 8 bits: 500 Lloyd rounds over 200,000 samples of normal(key 0), starting from
             points evenly spaced over the range of the sample; an empty cell keeps its centroid.
             3 bits: the quantizer of Max (1960) for a unit normal, to five decimals.
Decision boundaries are the midpoints of centroids; those of Max are rounded on their own.
"""

import pathlib

import mlx.core as mx
import numpy as np

OUT = pathlib.Path(__file__).parent.parent / "src/kernels/cpu/encodings/turboquant_tables.inl"
DIMS = (64, 128, 256, 512)
MAX_3_BITS = [0.24509, 0.75601, 1.34391, 2.15195]
MAX_3_BITS_BOUNDARIES = [0.50055, 1.04996, 1.74793]


def lloyd(bits):
    sample = np.sort(np.array(mx.random.normal((200_000,), key=mx.random.key(0)))).astype(np.float64)
    below = np.concatenate([[0.0], np.cumsum(sample)])
    centroids = np.linspace(sample[0], sample[-1], 2**bits)
    for _ in range(500):
        edges = np.searchsorted(sample, (centroids[1:] + centroids[:-1]) / 2)
        edges = np.concatenate([[0], edges, [len(sample)]])
        count, total = np.diff(edges), below[edges[1:]] - below[edges[:-1]]
        centroids = np.where(count > 0, total / np.maximum(count, 1), centroids)
    return centroids.astype(np.float32)


def write_array(out, ctype, name, values, form):
    out.append(f"constexpr {ctype} {name}[] = {{")
    line = "   "
    for value in values:
        text = f" {form(value)},"
        if len(line) + len(text) > 100:
            out.append(line)
            line = "   "
        line += text
    out += [line, "};"]


def as_float(value):
    text = f"{np.float32(value):.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def main():
    mx.set_default_device(mx.cpu)
    out = ["// Written by tools/make_turboquant_tables.py, which says where each number comes from.",
           "// clang-format off", ""]
    for dim in DIMS:
        signs = 1 - 2 * np.array(mx.random.randint(0, 2, (dim,), key=mx.random.key(42))).astype(int)
        # A bit per channel, 1 where the sign is negative: 64 channels a word.
        words = [sum(int(s < 0) << i for i, s in enumerate(signs[at:at + 64])) for at in range(0, dim, 64)]
        write_array(out, "uint64_t", f"kNegative{dim}", words, lambda w: f"0x{w:016x}u")
    for bits in (2, 3, 4, 5, 8):
        centroids = lloyd(bits) if bits != 3 else [-c for c in reversed(MAX_3_BITS)] + MAX_3_BITS
        write_array(out, "float", f"kCentroids{bits}", centroids, as_float)
    boundaries = [-b for b in reversed(MAX_3_BITS_BOUNDARIES)] + [0] + MAX_3_BITS_BOUNDARIES
    write_array(out, "float", "kBoundaries3", boundaries, as_float)
    OUT.write_text("\n".join(out) + "\n")


main()
