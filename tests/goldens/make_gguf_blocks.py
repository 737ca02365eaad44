"""Writes gguf_blocks.safetensors: random rows of every GGUF block format that Cohort reads, as stored
bytes and as gguf-py (0.19.0) decodes them. Run: python make_gguf_blocks.py (needs gguf, numpy, safetensors).
"""

import pathlib

import gguf
import numpy
from safetensors.numpy import save_file

ROWS, COLS = 5, 512
K_QUANT_BYTES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
HALVES_AT = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}  # offsets of the f16 scales in a block

random = numpy.random.default_rng(0)
tensors = {}
for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
    kind = gguf.GGMLQuantizationType[name]
    if name in K_QUANT_BYTES:  # gguf-py only decodes these: random blocks with sane scales
        blocks = random.integers(0, 256, (ROWS, COLS // 256, K_QUANT_BYTES[name]), dtype=numpy.uint8)
        for at in HALVES_AT[name]:
            scales = random.uniform(0.001, 0.02, blocks.shape[:2]).astype(numpy.float16)
            blocks[:, :, at : at + 2] = scales[..., None].view(numpy.uint8)
        stored = blocks.reshape(ROWS, -1)
    else:
        stored = gguf.quantize(random.normal(size=(ROWS, COLS)).astype(numpy.float32), kind)
    tensors[f"{name}.stored"] = numpy.ascontiguousarray(stored)
    tensors[f"{name}.values"] = gguf.dequantize(stored, kind).astype(numpy.float32)
save_file(tensors, pathlib.Path(__file__).with_name("gguf_blocks.safetensors"))
