#!/usr/bin/env python3
"""Writes the small files of tests/fuzz/corpus: hostile checkpoints, and valid ones named ok_*.

They are the seeds of the fuzz targets and the inputs of tests/checkpoint/hostile_files_test.cpp,
which says what each of them must lead to.

  tools/make_hostile_files.py          writes the files and removes others
  tools/make_hostile_files.py --check  exits 1 if the files differ from what would be written
"""
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/fuzz/corpus"

# ---------------------------------------------------------------- safetensors


def raw_safetensors(header: bytes, data: bytes = b"", length=None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def safetensors(data_bytes=0, **entries) -> bytes:
    return raw_safetensors(json.dumps(entries).encode(), bytes(data_bytes))


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_files():
    one = entry("F32", [2], 0, 8)
    text = json.dumps({"a": one}).encode()
    files = {
        "empty": b"",
        "short": b"\x01\x00\x00",
        "header_longer_than_file": raw_safetensors(text, bytes(8), length=4096),
        "header_over_limit": raw_safetensors(text, bytes(8), length=100_000_001),
        "header_2_63": raw_safetensors(text, bytes(8), length=2**63),
        "header_2_64_less_8": raw_safetensors(text, bytes(8), length=2**64 - 8),
        "header_empty": raw_safetensors(b""),
        "header_is_array": raw_safetensors(b"[" + text + b"]", bytes(8)),
        "header_leading_space": raw_safetensors(b" " + text, bytes(8)),
        "header_cut": raw_safetensors(text[:-4], bytes(8)),
        "header_trailing_text": raw_safetensors(text + b"{}", bytes(8)),
        "header_deep": raw_safetensors(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        "header_bad_utf8": raw_safetensors(text.replace(b'"a"', b'"\xff\xfe"'), bytes(8)),
        "header_lone_surrogate": raw_safetensors(text.replace(b'"a"', b'"\\ud800"'), bytes(8)),
        "header_zero_byte": raw_safetensors(text + b"\x00", bytes(8)),
        "duplicate_name": raw_safetensors(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)),
        "duplicate_name_escaped": raw_safetensors(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"\\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)),
        "duplicate_field": raw_safetensors(
            b'{"a":{"dtype":"F32","shape":[2],"shape":[1],"data_offsets":[0,8]}}', bytes(8)),
        "overlap": safetensors(12, a=one, b=entry("F32", [2], 4, 12)),
        "overlap_same": safetensors(8, a=one, b=one),
        "hole": safetensors(20, a=one, b=entry("F32", [2], 12, 20)),
        "hole_at_start": safetensors(12, a=entry("F32", [2], 4, 12)),
        "bytes_at_end": safetensors(9, a=one),
        "offsets_reversed": safetensors(8, a=entry("F32", [2], 8, 0)),
        "offsets_past_end": safetensors(7, a=one),
        "offsets_far_past_end": safetensors(8, a=entry("F32", [2**30], 0, 2**32)),
        "offsets_2_63": safetensors(8, a=entry("F32", [2], 2**63 - 8, 2**63)),
        "offsets_2_64": safetensors(8, a=entry("F32", [2], 0, 2**64 + 8)),
        "offsets_negative": safetensors(8, a=entry("F32", [2], -8, 0)),
        "offsets_fraction": safetensors(8, a=entry("F32", [2], 0.0, 8.0)),
        "offsets_three": safetensors(8, a={**one, "data_offsets": [0, 4, 8]}),
        "offsets_missing": safetensors(8, a={"dtype": "F32", "shape": [2]}),
        "shape_too_large": safetensors(8, a=entry("F32", [3], 0, 8)),
        "shape_wraps_to_0": safetensors(0, a=entry("F32", [2**32, 2**32], 0, 0)),
        "shape_wraps_to_8": safetensors(8, a=entry("F32", [2**62 + 2], 0, 8)),
        "shape_wraps_beside_0": safetensors(0, a=entry("F32", [0, 2**40, 2**40], 0, 0)),
        "shape_negative": safetensors(8, a=entry("F32", [-1, -2], 0, 8)),
        "shape_2_63": safetensors(8, a=entry("U8", [2**63], 0, 8)),
        "shape_fraction": safetensors(8, a=entry("F32", [2.0], 0, 8)),
        "shape_text": safetensors(8, a=entry("F32", ["2"], 0, 8)),
        "shape_number": safetensors(8, a=entry("F32", 2, 0, 8)),
        "shape_missing": safetensors(8, a={"dtype": "F32", "data_offsets": [0, 8]}),
        "dtype_unknown": safetensors(8, a=entry("F33", [2], 0, 8)),
        "dtype_complex": safetensors(8, a=entry("C64", [1], 0, 8)),
        "dtype_gguf": safetensors(18, a=entry("Q4_0", [32], 0, 18)),
        "dtype_number": safetensors(8, a=entry(32, [2], 0, 8)),
        "dtype_missing": safetensors(8, a={"shape": [2], "data_offsets": [0, 8]}),
        "entry_null": safetensors(0, a=None),
        "metadata_list": safetensors(0, __metadata__=["format"]),
        "metadata_number": safetensors(0, __metadata__={"format": 1}),
        "name_hostile": raw_safetensors(
            b'{"\\u001b[2J\\r\\n\\"' + b"x" * 200 + b'":{"dtype":"F32"}}'),
    }
    widths = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "BOOL": 1, "I8": 1, "U8": 1, "I16": 2,
              "U16": 2, "I32": 4, "U32": 4, "I64": 8, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
              "F8_E8M0": 1}
    every, at = {}, 0
    for dtype, width in widths.items():
        every["t." + dtype] = entry(dtype, [3, 1], at, at + 3 * width)
        at += 3 * width
    files |= {
        "ok_nothing": raw_safetensors(b"{}"),
        "ok_plain": safetensors(8, __metadata__={"format": "pt"}, a=one),
        "ok_every_dtype": safetensors(at, **every),
        "ok_scalar": safetensors(4, a=entry("F32", [], 0, 4)),
        "ok_empty_tensor": safetensors(8, a=one, b=entry("F32", [0, 7], 8, 8),
                                       c=entry("U8", [0], 0, 0)),
        "ok_any_order": safetensors(12, z=entry("F32", [1], 8, 12), a=one),
        "ok_padded": raw_safetensors(text + b" " * (-len(text) % 8), bytes(8)),
        "ok_unknown_field": safetensors(8, a={**one, "note": None}),
    }
    return {name + ".safetensors": content for name, content in files.items()}


# ---------------------------------------------------------------- GGUF

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
           I64: "q", F64: "d"}


def string(text, length=None) -> bytes:
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text) if length is None else length) + text


def pair(key, kind, value) -> bytes:
    head = string(key) + struct.pack("<I", kind)
    if kind in FORMATS:
        return head + struct.pack("<" + FORMATS[kind], value)
    return head + (string(value) if kind == STRING else value)


def array(kind, values, count=None) -> bytes:
    head = struct.pack("<IQ", kind, len(values) if count is None else count)
    if kind == STRING:
        return head + b"".join(string(v) for v in values)
    return head + b"".join(struct.pack("<" + FORMATS[kind], v) for v in values)


def tensor(name, ne, kind, offset, rank=None) -> bytes:
    dims = b"".join(struct.pack("<Q", n % 2**64) for n in ne)
    rank = len(ne) if rank is None else rank
    return string(name) + struct.pack("<I", rank) + dims + struct.pack("<IQ", kind, offset)


def gguf(pairs=(), tensors=(), data=0, version=3, num_pairs=None, num_tensors=None, alignment=32,
         magic=b"GGUF") -> bytes:
    num_pairs = len(pairs) if num_pairs is None else num_pairs
    num_tensors = len(tensors) if num_tensors is None else num_tensors
    head = magic + struct.pack("<IQQ", version, num_tensors, num_pairs)
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(data)


def gguf_files():
    def pairs(*given):
        return gguf(pairs=given)

    def one(*given, data=64, **more):
        return gguf(tensors=[tensor(*given)], data=data, **more)

    name = pair("general.name", STRING, "x")
    types = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
             "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
             "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "I8": (24, 1, 1), "I16": (25, 1, 2),
             "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8), "BF16": (30, 1, 2)}
    every, at = [], 0
    for kind, (number, elements, size) in types.items():
        every.append(tensor("t." + kind, [elements, 2], number, at))
        at += 2 * size + -2 * size % 32
    scalars = [pair("s.u8", U8, 255), pair("s.i8", I8, -1), pair("s.u16", U16, 65535),
               pair("s.i16", I16, -2), pair("s.u32", U32, 2**32 - 1), pair("s.i32", I32, -3),
               pair("s.f32", F32, 0.5), pair("s.true", BOOL, 1), pair("s.false", BOOL, 0),
               pair("s.string", STRING, "two\nlines \u2581"), pair("s.u64", U64, 2**64 - 1),
               pair("s.i64", I64, -4), pair("s.f64", F64, 0.25),
               pair("a.i32", ARRAY, array(I32, [1, -2, 3])),
               pair("a.f32", ARRAY, array(F32, [0.5])),
               pair("a.u8", ARRAY, array(U8, [1, 2])), pair("a.bool", ARRAY, array(BOOL, [1, 0])),
               pair("a.string", ARRAY, array(STRING, ["a", "", "ccc"])),
               pair("a.none", ARRAY, array(I32, []))]
    gemma = [pair("general.architecture", STRING, "gemma3"),
             pair("tokenizer.ggml.tokens", ARRAY, array(STRING, ["a", "b"]))]
    gemma_27b = [pair("gemma3." + key, U32, value) for key, value in (
        ("context_length", 131072), ("embedding_length", 5376), ("block_count", 62),
        ("feed_forward_length", 21504), ("attention.head_count", 32),
        ("attention.head_count_kv", 16), ("attention.key_length", 128),
        ("attention.sliding_window", 1024))]
    gemma_27b.append(pair("gemma3.rope.freq_base", F32, 1e6))
    files = {
        "empty": b"",
        "short": b"GG",
        "only_magic": b"GGUF",
        "magic": gguf(magic=b"GGML"),
        "version_0": gguf(version=0),
        "version_1": gguf(version=1),
        "version_4": gguf(version=4),
        "version_big_endian": gguf(version=3 << 24),
        "no_counts": gguf()[:20],
        "pairs_2_63": gguf(num_pairs=2**63),
        "pairs_2_64": gguf(num_pairs=2**64 - 1),
        "pairs_too_many": gguf(pairs=[name], num_pairs=2),
        "tensors_2_63": gguf(num_tensors=2**63),
        "tensors_2_64": gguf(num_tensors=2**64 - 1),
        "tensors_too_many": gguf(tensors=[tensor("a", [8], 0, 0)], num_tensors=2, data=32),
        "key_length_2_64": pairs(string("k", 2**64 - 1) + bytes(64)),
        "key_duplicate": pairs(name, name),
        "string_length_2_64": pairs(string("k") + struct.pack("<IQ", STRING, 2**64 - 1) + b"v"),
        "string_length_wraps": pairs(string("k") + struct.pack("<IQ", STRING, 2**64 - 40)),
        "string_past_end": pairs(string("k") + struct.pack("<IQ", STRING, 4096) + b"v"),
        "value_type_unknown": pairs(string("k") + struct.pack("<I", 13) + bytes(16)),
        "bool_2": pairs(pair("k", BOOL, 2)),
        "bool_array_2": pairs(pair("k", ARRAY, array(BOOL, [0, 2]))),
        "array_of_array": pairs(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + array(I32, [1]))),
        "array_deep": pairs(pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 4000)),
        "array_type_unknown": pairs(pair("k", ARRAY, struct.pack("<IQ", 99, 1) + bytes(16))),
        "array_length_2_62": pairs(pair("k", ARRAY, array(F32, [1.0], 2**62))),
        "array_length_2_64": pairs(pair("k", ARRAY, array(U64, [1], 2**64 - 1))),
        "array_strings_2_61": pairs(pair("k", ARRAY, array(STRING, ["v"], 2**61))),
        "array_string_cut": pairs(pair("k", ARRAY, array(STRING, [], 1) + string("v", 999))),
        "alignment_0": gguf(pairs=[pair("general.alignment", U32, 0)]),
        "alignment_1": gguf(pairs=[pair("general.alignment", U32, 1)]),
        "alignment_24": gguf(pairs=[pair("general.alignment", U32, 24)]),
        "alignment_2_31": gguf(pairs=[pair("general.alignment", U32, 2**31)]),
        "alignment_text": gguf(pairs=[pair("general.alignment", STRING, "32")]),
        "alignment_negative": gguf(pairs=[pair("general.alignment", I32, -32)]),
        "rank_0": one("a", [], 0, 0),
        "rank_5": one("a", [1, 1, 1, 1, 1], 0, 0),
        "rank_2_32": gguf(tensors=[tensor("a", [1], 0, 0, rank=2**32 - 1)], data=64),
        "dimension_0": one("a", [0], 0, 0),
        "dimension_negative": one("a", [-8], 0, 0),
        "dimensions_wrap_to_0": one("a", [2**32, 2**32], 0, 0),
        "dimensions_wrap_to_4": one("a", [2**62 + 1], 0, 0),
        "dimensions_wrap_rows": one("a", [32, 2**31, 2**31, 2**31], 2, 0),
        "blocks_partial": one("a", [16], 2, 0),
        "blocks_partial_k": one("a", [128], 12, 0, data=256),
        "type_unknown": one("a", [8], 77, 0),
        "type_removed": one("a", [32], 4, 0),
        "type_iq2_xxs": one("a", [256], 16, 0, data=256),
        "type_q2_k": one("a", [256], 10, 0, data=256),
        "tensor_name_2_64": gguf(tensors=[string("a", 2**64 - 1) + bytes(64)]),
        "tensor_duplicate": gguf(tensors=[tensor("a", [8], 0, 0), tensor("a", [8], 0, 32)],
                                 data=64),
        "tensor_larger_than_file": one("a", [2**20], 0, 0),
        "tensor_ends_1_past_end": one("a", [8], 0, 32, data=63),
        "tensor_offset_past_end": one("a", [8], 0, 4096),
        "tensor_offset_2_63": one("a", [8], 0, 2**63),
        "tensor_offset_wraps": one("a", [8], 0, 2**64 - 32),
        "tensor_offset_unaligned": one("a", [8], 0, 4),
        "tensor_overlap": gguf(tensors=[tensor("a", [16], 0, 0), tensor("b", [8], 0, 32)], data=64),
        "tensor_same_place": gguf(tensors=[tensor("a", [8], 0, 0), tensor("b", [8], 0, 0)],
                                  data=64),
        "tensor_no_data": one("a", [8], 0, 0, data=0),
        "ok_nothing": gguf(),
        "ok_version_2": gguf(version=2, pairs=[name]),
        "ok_every_value": gguf(pairs=scalars),
        "ok_every_type": gguf(tensors=every, data=at),
        "ok_alignment_64": gguf(pairs=[pair("general.alignment", U32, 64)],
                                tensors=[tensor("a", [8], 0, 64), tensor("b", [2, 3], 1, 0)],
                                data=96, alignment=64),
        "ok_hole": one("a", [8], 0, 32),
        "ok_templates": pairs(pair("tokenizer.chat_templates", ARRAY, array(STRING, ["tool_use"])),
                              pair("tokenizer.chat_template.tool_use", STRING, "t"),
                              pair("tokenizer.chat_template", STRING, "d")),
        "ok_split": pairs(pair("split.count", U16, 3)),
        "ok_gemma3_bare": pairs(*gemma),
        "ok_gemma3_27b": pairs(*gemma, *gemma_27b),
        "ok_rank_4": one("a", [2, 1, 3, 2], 0, 0),
    }
    return {name + ".gguf": content for name, content in files.items()}


# ---------------------------------------------------------------- config.json

def config_files():
    def quantized(**fields):
        return json.dumps({"model_type": "llama", "quantization": fields}).encode()

    files = {
        "empty": b"",
        "array": b"[]",
        "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
        "bad_utf8": b'{"\xff":1}',
        "nan": b'{"rms_norm_eps": NaN}',
        "quantization_list": b'{"quantization": [4, 64]}',
        "group_size_3": quantized(group_size=3, bits=4),
        "group_size_text": quantized(group_size="64", bits=4),
        "group_size_2_64": quantized(group_size=2**64 + 64, bits=4),
        "bits_0": quantized(group_size=64, bits=0),
        "bits_7": quantized(group_size=64, bits=7),
        "bits_fraction": quantized(group_size=64, bits=4.0),
        "mode_number": quantized(group_size=64, bits=4, mode=4),
        "module_bits_1": quantized(group_size=64, bits=4, lm_head={"group_size": 64, "bits": 1}),
        "gptq": b'{"quantization_config": {"quant_method": "gptq", "bits": 4}}',
        "ok_none": b'{"model_type": "llama"}',
        "ok_null": b'{"quantization": null, "quantization_config": null}',
        "ok_affine": quantized(group_size=64, bits=4, mode="affine"),
        "ok_mxfp4": quantized(group_size=32, bits=4, mode="mxfp4"),
        "ok_modules": quantized(group_size=64, bits=4, **{
            "language_model.model.layers.0.router.proj": {"group_size": 64, "bits": 8},
            "lm_head": False, "model.norm": True}),
    }
    return {name + ".json": content for name, content in files.items()}


def main() -> int:
    wanted = {}
    for folder, files in (("safetensors", safetensors_files()), ("gguf", gguf_files()),
                          ("config", config_files())):
        wanted |= {ROOT / folder / name: content for name, content in files.items()}
    # tests/kv/row_record_test.cpp writes and checks those of kv_record.
    present = {path for path in ROOT.rglob("*") if path.is_file() and path.parent.name != "kv_record"}
    stale = sorted(present - wanted.keys())
    changed = sorted(path for path, content in wanted.items()
                     if path not in present or path.read_bytes() != content)
    if "--check" in sys.argv[1:]:
        for path in stale + changed:
            print(f"{path}: differs from tools/make_hostile_files.py")
        return 1 if stale or changed else 0
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    print(f"{len(wanted)} files, {sum(map(len, wanted.values()))} bytes; {len(changed)} written, "
          f"{len(stale)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
