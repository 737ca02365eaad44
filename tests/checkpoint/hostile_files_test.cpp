// Every file of tests/fuzz/corpus must lead to the error that is said here, or to none if its name
// starts with ok_. tools/make_hostile_files.py writes the files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/json.h"
#include "model/gguf.h"
#include "model/quantization.h"
#include "model/safetensors.h"
#include "tests/fuzz/touch_tensors.h"

namespace cohort::model {
namespace {

namespace fs = std::filesystem;
using Expected = std::map<std::string, std::string>;  // file name to a part of the error

const Expected kSafetensorsErrors = {
    {"empty", "0 bytes are too few"},
    {"short", "3 bytes are too few"},
    {"header_longer_than_file", "a header of 4096 bytes does not fit the file of 77"},
    {"header_over_limit", "exceeds the limit of 100000000"},
    {"header_2_63", "a header of 9223372036854775808 bytes exceeds the limit"},
    {"header_2_64_less_8", "a header of 18446744073709551608 bytes exceeds the limit"},
    {"header_empty", "the header does not start with {"},
    {"header_is_array", "the header does not start with {"},
    {"header_leading_space", "the header does not start with {"},
    {"header_cut", "header: invalid JSON at byte 57: incomplete"},
    {"header_trailing_text", "header: invalid JSON at byte 61: extra data"},
    {"header_deep", "header: invalid JSON at byte 12: too deep"},
    {"header_bad_utf8", "header: invalid JSON at byte 2"},
    {"header_lone_surrogate", "header: invalid JSON at byte 8"},
    {"header_zero_byte", "header: invalid JSON at byte 61"},
    {"duplicate_name", "the key 'a' appears twice"},
    {"duplicate_name_escaped", "the key 'a' appears twice"},
    {"duplicate_field", "the key 'shape' appears twice"},
    {"overlap", "tensor 'b': its data overlap those of 'a'"},
    {"overlap_same", "tensor 'b': its data overlap those of 'a'"},
    {"hole", "tensor 'b': there is a hole of 4 bytes before its data"},
    {"hole_at_start", "tensor 'a': there is a hole of 4 bytes before its data"},
    {"bytes_at_end", "1 bytes at the end belong to no tensor"},
    {"offsets_reversed", "tensor 'a': data_offsets [8, 0) are reversed"},
    {"offsets_past_end", "tensor 'a': data_offsets [0, 8) leave the file, which has 7 data bytes"},
    {"offsets_far_past_end", "tensor 'a': data_offsets [0, 4294967296) leave the file"},
    {"offsets_2_63", "tensor 'a': data_offsets holds '9223372036854775808', not an integer in"},
    {"offsets_2_64", "tensor 'a': data_offsets holds"},
    {"offsets_negative", "tensor 'a': data_offsets holds '-8', not an integer in"},
    {"offsets_fraction", "tensor 'a': data_offsets holds"},
    {"offsets_three", "tensor 'a': data_offsets has 3 elements, not 2"},
    {"offsets_missing", "tensor 'a': data_offsets is missing"},
    {"shape_too_large", "tensor 'a': F32 [3] takes 12 bytes, but data_offsets [0, 8) hold 8"},
    {"shape_wraps_to_0", "tensor 'a': the size of shape [4294967296, 4294967296] overflows"},
    {"shape_wraps_to_8", "tensor 'a': the size of shape [4611686018427387906] overflows"},
    {"shape_wraps_beside_0",
     "tensor 'a': the size of shape [0, 1099511627776, 1099511627776] over"},
    {"shape_negative", "tensor 'a': shape holds '-1', not an integer in"},
    {"shape_2_63", "tensor 'a': shape holds '9223372036854775808', not an integer in"},
    {"shape_fraction", "tensor 'a': shape holds"},
    {"shape_text", "tensor 'a': shape holds '\"2\"', not an integer"},
    {"shape_number", "tensor 'a': shape is missing or not an array"},
    {"shape_missing", "tensor 'a': shape is missing"},
    {"dtype_unknown", "tensor 'a': the dtype 'F33' is not supported; supported: F32, F16, BF16"},
    {"dtype_complex", "tensor 'a': the dtype 'C64' is not supported"},
    {"dtype_gguf", "tensor 'a': the dtype 'Q4_0' is not supported"},
    {"dtype_number", "tensor 'a': dtype is missing or not a string"},
    {"dtype_missing", "tensor 'a': dtype is missing"},
    {"entry_null", "tensor 'a': its header entry is not an object"},
    {"metadata_list", "__metadata__ is not an object"},
    {"metadata_number", "__metadata__ entry 'format' is not a string"},
    {"name_hostile", "tensor '\\x1b[2J\\x0d\\x0a\"xxx"},
};

const Expected kGgufErrors = {
    {"empty", "magic of 4 bytes at byte 0 runs past the end"},
    {"short", "magic of 4 bytes at byte 0 runs past the end"},
    {"only_magic", "version of 4 bytes at byte 4 runs past the end"},
    {"magic", "it does not start with \"GGUF\""},
    {"version_0", "GGUF version 0 is not supported; supported: 2, 3"},
    {"version_1", "GGUF version 1 is not supported"},
    {"version_4", "GGUF version 4 is not supported"},
    {"version_big_endian", "big-endian GGUF is not supported"},
    {"no_counts", "number of metadata pairs of 8 bytes at byte 16 runs past the end"},
    {"pairs_2_63", "9223372036854775808 metadata pairs do not fit the file"},
    {"pairs_2_64", "18446744073709551615 metadata pairs do not fit the file"},
    {"pairs_too_many", "metadata pair number 1: key of 8 bytes at byte 57 runs past the end"},
    {"tensors_2_63", "9223372036854775808 tensors do not fit the file"},
    {"tensors_2_64", "18446744073709551615 tensors do not fit the file"},
    {"tensors_too_many", "tensor '': 0 dimensions are not within 1..4"},
    {"key_length_2_64", "key of 18446744073709551615 bytes at byte 32 runs past the end"},
    {"key_duplicate", "the metadata key 'general.name' appears twice"},
    {"string_length_2_64", "metadata key 'k': string of 18446744073709551615 bytes"},
    {"string_length_wraps", "metadata key 'k': string of 18446744073709551576 bytes"},
    {"string_past_end", "metadata key 'k': string of 4096 bytes at byte 45 runs past the end"},
    {"value_type_unknown", "metadata key 'k': the value type 13 is unknown"},
    {"bool_2", "metadata key 'k': the bool is 2, neither 0 nor 1"},
    {"bool_array_2", "metadata key 'k': a bool is neither 0 nor 1"},
    {"array_of_array", "metadata key 'k': an array of arrays is not allowed"},
    {"array_deep", "metadata key 'k': an array of arrays is not allowed"},
    {"array_type_unknown", "metadata key 'k': the array element type 99 is unknown"},
    {"array_length_2_62", "an array of 4611686018427387904 numbers does not fit the file"},
    {"array_length_2_64", "an array of 18446744073709551615 numbers does not fit the file"},
    {"array_strings_2_61", "an array of 2305843009213693952 strings does not fit the file"},
    {"array_string_cut", "metadata key 'k': string of 999 bytes"},
    {"alignment_0", "general.alignment is 0, not a power of two in [8, 1048576]"},
    {"alignment_1", "general.alignment is 1, not a power of two"},
    {"alignment_24", "general.alignment is 24, not a power of two"},
    {"alignment_2_31", "general.alignment is 2147483648, not a power of two"},
    {"alignment_text", "key 'general.alignment' must be uint32, but is string"},
    {"alignment_negative", "key 'general.alignment' must be uint32, but is int32 -32"},
    {"rank_0", "tensor 'a': 0 dimensions are not within 1..4"},
    {"rank_5", "tensor 'a': 5 dimensions are not within 1..4"},
    {"rank_2_32", "tensor 'a': 4294967295 dimensions are not within 1..4"},
    {"dimension_0", "tensor 'a': a dimension of 0 is not positive"},
    {"dimension_negative", "tensor 'a': a dimension of -8 is not positive"},
    {"dimensions_wrap_to_0", "tensor 'a': the size of shape [4294967296, 4294967296] overflows"},
    {"dimensions_wrap_to_4", "tensor 'a': the size of shape [4611686018427387905] overflows"},
    {"dimensions_wrap_rows",
     "tensor 'a': the size of shape [2147483648, 2147483648, 2147483648, 32]"},
    {"blocks_partial", "rows of 16 elements are no whole number of Q4_0 blocks of 32"},
    {"blocks_partial_k", "rows of 128 elements are no whole number of Q4_K blocks of 256"},
    {"type_unknown", "tensor 'a': the type id 77 is unknown; supported: F32, F16"},
    {"type_removed", "tensor 'a': the type id 4 is unknown"},
    {"type_iq2_xxs", "tensor 'a': the type IQ2_XXS is not supported; supported: F32, F16"},
    {"type_q2_k", "tensor 'a': the type Q2_K is not supported"},
    {"tensor_name_2_64", "tensor number 0: name of 18446744073709551615 bytes"},
    {"tensor_duplicate", "tensor 'a': the name appears twice"},
    {"tensor_larger_than_file",
     "4194304 bytes at offset 0 leave the file, which has 64 data bytes"},
    {"tensor_ends_1_past_end", "32 bytes at offset 32 leave the file, which has 63 data bytes"},
    {"tensor_offset_past_end", "tensor 'a': 32 bytes at offset 4096 leave the file"},
    {"tensor_offset_2_63", "tensor 'a': 32 bytes at offset 9223372036854775808 leave the file"},
    {"tensor_offset_wraps", "tensor 'a': 32 bytes at offset 18446744073709551584 leave the file"},
    {"tensor_offset_unaligned", "tensor 'a': its offset 4 is no multiple of the alignment 32"},
    {"tensor_overlap", "tensor 'b': its data overlap those of 'a'"},
    {"tensor_same_place", "tensor 'b': its data overlap those of 'a'"},
    {"tensor_no_data", "tensor 'a': 32 bytes at offset 0 leave the file, which has 0 data bytes"},
};

const Expected kConfigErrors = {
    {"empty", "invalid JSON at byte 0: incomplete"},
    {"array", "a JSON object is needed, not array"},
    {"deep", "invalid JSON at byte 160: too deep"},
    {"bad_utf8", "invalid JSON at byte 2"},
    {"nan", "invalid JSON at byte 17"},
    {"quantization_list", "quantization is not an object"},
    {"group_size_3", "quantization.group_size is 3; supported: 32, 64, 128"},
    {"group_size_text", "quantization.group_size is '\"64\"', not an integer"},
    {"group_size_2_64", "quantization.group_size is '1.8446744073709552E19', not an integer"},
    {"bits_0", "quantization.bits is 0; supported: 2, 3, 4, 5, 6, 8"},
    {"bits_7", "quantization.bits is 7; supported"},
    {"bits_fraction", "quantization.bits is '4E0', not an integer"},
    {"mode_number", "quantization.mode is not a string"},
    {"module_bits_1", "quantization.'lm_head'.bits is 1; supported"},
    {"gptq", "the quantization method 'gptq' is not supported; supported: MLX affine"},
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A reader of one kind of file; the bytes are copied to a block of exactly their size, so that the
// address sanitizer sees any read outside.
enum class Kind { kSafetensors, kGguf, kConfig };

void parse(Kind kind, std::string_view text, const std::string& name) {
  const auto block = std::make_unique<std::byte[]>(text.size());
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), block.get());
  const std::span<const std::byte> bytes(block.get(), text.size());
  if (kind == Kind::kSafetensors) {
    test::touch_tensors(SafetensorsIndex::parse(bytes, name).tensors, bytes);
  } else if (kind == Kind::kGguf) {
    test::touch_tensors(GgufIndex::parse(bytes, name).tensors, bytes);
  } else {
    QuantizationConfig::parse(parse_json_object(text, name), name);
  }
}

// The message of the error, or "" if the bytes are accepted. Anything but an Error fails the test.
std::string refusal(Kind kind, std::string_view text, const std::string& name = "file") {
  try {
    parse(kind, text, name);
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::kInvalidRequest ||
                error.kind() == ErrorKind::kUnsupported)
        << error.what();
    return error.what();
  }
  return "";
}

void expect_refusals(Kind kind, const std::string& folder, const Expected& expected) {
  std::set<std::string> unseen;
  for (const auto& [name, part] : expected) unseen.insert(name);
  size_t accepted = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(COHORT_CORPUS "/" + folder)) {
    const std::string name = entry.path().filename().string();
    const std::string stem = entry.path().stem().string();
    const std::string message = refusal(kind, read_file(entry.path()), name);
    if (stem.starts_with("ok_")) {
      EXPECT_EQ(message, "") << name;
      ++accepted;
      continue;
    }
    unseen.erase(stem);
    ASSERT_TRUE(expected.contains(stem)) << name << " has no expected error; it is: " << message;
    EXPECT_TRUE(message.starts_with(name + ": ")) << message;
    EXPECT_NE(message.find(expected.at(stem)), message.npos) << message;
  }
  EXPECT_TRUE(unseen.empty()) << *unseen.begin() << " is not in the corpus";
  EXPECT_GE(accepted, 5U);
}

TEST(HostileFiles, SafetensorsErrors) {
  expect_refusals(Kind::kSafetensors, "safetensors", kSafetensorsErrors);
}
TEST(HostileFiles, GgufErrors) {
  expect_refusals(Kind::kGguf, "gguf", kGgufErrors);
}
TEST(HostileFiles, ConfigErrors) {
  expect_refusals(Kind::kConfig, "config", kConfigErrors);
}

// Files whose last byte belongs to a tensor, so that none of their prefixes is valid.
struct Sample {
  Kind kind;
  std::string path;
};
const Sample kSamples[] = {
    {Kind::kSafetensors, COHORT_CORPUS "/safetensors/ok_every_dtype.safetensors"},
    {Kind::kSafetensors, COHORT_CORPUS "/safetensors/ok_any_order.safetensors"},
    {Kind::kGguf, COHORT_CORPUS "/gguf/ok_alignment_64.gguf"},
    {Kind::kGguf, COHORT_CORPUS "/gguf/ok_hole.gguf"},
};

TEST(HostileFiles, EveryTruncationIsRefused) {
  for (const Sample& sample : kSamples) {
    const std::string file = read_file(sample.path);
    ASSERT_FALSE(file.empty()) << sample.path;
    for (size_t size = 0; size < file.size(); ++size) {
      EXPECT_NE(refusal(sample.kind, std::string_view(file).substr(0, size)), "")
          << sample.path << " cut to " << size;
    }
  }
}

TEST(HostileFiles, EveryChangedByteIsRefusedOrHarmless) {
  std::vector<Sample> samples(std::begin(kSamples), std::end(kSamples));
  samples.push_back({Kind::kGguf, COHORT_CORPUS "/gguf/ok_every_value.gguf"});
  samples.push_back({Kind::kGguf, COHORT_CORPUS "/gguf/ok_every_type.gguf"});
  samples.push_back({Kind::kConfig, COHORT_CORPUS "/config/ok_modules.json"});
  for (const Sample& sample : samples) {
    std::string file = read_file(sample.path);
    const size_t header_bytes = std::min<size_t>(file.size(), 2048);
    for (size_t i = 0; i < header_bytes; ++i) {
      for (const int flip : {0x01, 0x02, 0x10, 0x40, 0x80, 0xff}) {
        const char original = file[i];
        file[i] = static_cast<char>(original ^ flip);
        refusal(sample.kind, file);  // aborts, or trips a sanitizer, on a tensor that lies outside
        file[i] = original;
      }
    }
  }
}

}  // namespace
}  // namespace cohort::model
