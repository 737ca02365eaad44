#!/usr/bin/env python3
"""Files to measure speed with, made from the SmolLM2 file; their answers mean nothing.

    .deps/venv/bin/python bench/make_gguf.py [FILE ...]     # all of them; about 2 GB

smollm2-q4_0, smollm2-q8_0   its weights, quantized again
1b-q4_0, 1b-q4_k             random weights in the shape of Llama 3.2 1B, with its vocabulary: all Q4_0, and Q4_K
                             with Q6_K where files called Q4_K_M have that

They go to the cache folder, ~/.cache/cohort/bench, and are made once. Prints their paths.
"""

import argparse
import os
import pathlib
import struct

import numpy

import gguf_file
from gguf_file import Tensor
from machine import TREE, note, pull_gguf

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 16, 2048, 8192, 32, 8, 64, 8192
DEVIATION = 0.02  # of random weights
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K": 15}


def folder():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "cohort" / "bench"


# Blocks of 32 weights are made from f32 [blocks, 32].

def halves(values):
    return values.astype("<f2").view(numpy.uint8).reshape(len(values), 2)


def inverse(scales):
    return numpy.divide(1, scales, out=numpy.zeros_like(scales), where=scales != 0)


def to_q4_0(x):
    """Scale, then codes whose 8 is zero: element i in the low half of byte i, i + 16 in the high one."""
    farthest = numpy.take_along_axis(x, numpy.abs(x).argmax(1)[:, None], 1)
    scale = farthest / -8
    codes = numpy.clip(numpy.round(x * inverse(scale)) + 8, 0, 15).astype(numpy.uint8)
    return numpy.hstack([halves(scale), codes[:, :16] | codes[:, 16:] << 4])


def to_q8_0(x):
    scale = numpy.abs(x).max(1, keepdims=True) / 127
    return numpy.hstack([halves(scale), numpy.round(x * inverse(scale)).astype(numpy.int8).view(numpy.uint8)])


def from_q4_1(data):
    blocks = numpy.frombuffer(data, numpy.uint8).reshape(-1, 20)
    scale, least = blocks[:, :4].copy().view("<f2").astype(numpy.float32).T
    codes = numpy.hstack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4])
    return codes * scale[:, None] + least[:, None]


def requantize(tensors, target):
    quantize = {"Q4_0": to_q4_0, "Q8_0": to_q8_0}[target]
    for tensor in tensors:
        if tensor.type == "Q4_1":
            yield Tensor(tensor.name, tensor.shape, target, quantize(from_q4_1(tensor.data)).tobytes())
        else:
            yield tensor


# Random blocks: random codes, and scales for which the weights deviate by about DEVIATION.

def random_q4_0(random, count):
    blocks = random.integers(0, 256, (count, 18), numpy.uint8)
    blocks[:, :2] = halves(DEVIATION / 4.6 * random.uniform(0.5, 1.5, (count, 1)))
    return blocks


def random_q4_k(random, count):
    """Scale, scale of the minima, 6-bit scales and minima of 8 parts, codes."""
    blocks = random.integers(0, 256, (count, 144), numpy.uint8)
    blocks[:, :2] = halves(numpy.full((count, 1), DEVIATION / 230))
    blocks[:, 2:4] = halves(numpy.full((count, 1), DEVIATION / 230 * 7.5))
    return blocks


def random_q6_k(random, count):
    """Codes, signed scales of 16 parts, scale."""
    blocks = random.integers(0, 256, (count, 210), numpy.uint8)
    blocks[:, 192:208] = random.integers(1, 17, (count, 16), numpy.uint8)
    blocks[:, 208:] = halves(numpy.full((count, 1), DEVIATION / 180))
    return blocks


RANDOM_BLOCKS = {"Q4_0": random_q4_0, "Q4_K": random_q4_k, "Q6_K": random_q6_k}


def random_tensor(number, name, shape, kind):
    def data():
        if kind == "F32":
            return numpy.ones(shape[0], "<f4").tobytes()
        random = numpy.random.default_rng(number)
        return RANDOM_BLOCKS[kind](random, tensor.elements // gguf_file.TYPES[kind][1]).tobytes()

    tensor = Tensor(name, shape, kind, data)
    return tensor


def mixed_type(layer, part, kind):
    """Where Q4_K_M has Q6_K: in the head, and in every third layer and the first and last ones of two parts."""
    if kind != "Q4_K" or part not in ("head", "attn_v", "ffn_down"):
        return kind
    more = part == "head" or layer < LAYERS // 8 or layer >= 7 * LAYERS // 8 or (layer - LAYERS // 8) % 3 == 2
    return "Q6_K" if more else kind


def billion_tensors(vocabulary, kind):
    parts = {"attn_q": [WIDTH, HEADS * HEAD_DIM], "attn_k": [WIDTH, KV_HEADS * HEAD_DIM],
             "attn_v": [WIDTH, KV_HEADS * HEAD_DIM], "attn_output": [HEADS * HEAD_DIM, WIDTH],
             "ffn_gate": [WIDTH, INNER], "ffn_up": [WIDTH, INNER], "ffn_down": [INNER, WIDTH]}
    found = [("token_embd", [WIDTH, vocabulary], mixed_type(0, "head", kind)), ("output_norm", [WIDTH], "F32")]
    for layer in range(LAYERS):
        found += [(f"blk.{layer}.{norm}", [WIDTH], "F32") for norm in ("attn_norm", "ffn_norm")]
        found += [(f"blk.{layer}.{part}", shape, mixed_type(layer, part, kind)) for part, shape in parts.items()]
    return [random_tensor(number, f"{name}.weight", shape, type_of)
            for number, (name, shape, type_of) in enumerate(found)]


def number(value):
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def string(text):
    return struct.pack("<I", gguf_file.STRING) + gguf_file.packed(text)


def billion_values(values):
    return values | {
        "general.name": string("Random 1B"), "general.basename": string("random"), "general.size_label": string("1B"),
        "llama.block_count": number(LAYERS), "llama.context_length": number(CONTEXT),
        "llama.embedding_length": number(WIDTH), "llama.feed_forward_length": number(INNER),
        "llama.attention.head_count": number(HEADS), "llama.attention.head_count_kv": number(KV_HEADS),
        "llama.rope.dimension_count": number(HEAD_DIM), "llama.rope.freq_base": number(500000.0)}


def make(path, name, source):
    model, kind = name.split("-")
    values, tensors = gguf_file.read(source)
    kind = kind.upper()
    if model == "1b":
        embedding = next(tensor for tensor in tensors if tensor.name == "token_embd.weight")
        values, tensors = billion_values(values), billion_tensors(embedding.shape[1], kind)
    else:
        tensors = list(requantize(tensors, kind))
    path.parent.mkdir(parents=True, exist_ok=True)
    gguf_file.write(path, values | {"general.file_type": number(FILE_TYPES[kind])}, tensors)


FILES = ("smollm2-q4_0", "smollm2-q8_0", "1b-q4_0", "1b-q4_k")


def provide(name, cohort):
    """The path of one of FILES, made if it is not there."""
    path = folder() / f"{name}.gguf"
    if not path.exists():
        note(f"making {path.name}")
        make(path, name, pull_gguf(cohort, "smollm2"))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)} (default: all)")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    args = parser.parse_args()
    if set(args.files) - set(FILES):
        parser.error(f"there are {', '.join(FILES)}")
    for name in args.files or FILES:
        print(provide(name, args.cohort))


if __name__ == "__main__":
    main()
