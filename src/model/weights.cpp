#include "model/weights.h"

#include <algorithm>

#include "base/bit_stream.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/model.h"

namespace cohort::model {
namespace {

using kernels::cpu::DecodedGroup;
using kernels::cpu::kGroup;
using kernels::cpu::load_float;
using kernels::cpu::NumberType;
using kernels::cpu::PackedMatrix;
using kernels::cpu::QuantLayout;

/// Where row `row` of the model stands in the file.
int64_t stored_row(RowOrder order, int rows, int64_t row) {
  if (order.adjacent_pair_heads == 0) return row;
  const int64_t dim = rows / order.adjacent_pair_heads, head = row / dim, at = row % dim;
  const int64_t half = dim / 2;
  return head * dim + (at < half ? 2 * at : 2 * (at - half) + 1);
}

std::optional<NumberType> number_type(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return NumberType::kF32;
    case TensorType::kF16:
      return NumberType::kF16;
    case TensorType::kBF16:
      return NumberType::kBF16;
    default:
      return std::nullopt;
  }
}

QuantLayout affine_layout(const Quantization& q, const TensorView& scales) {
  return {.bits = q.bits, .scale = *number_type(scales.type), .has_min = true};
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 40) return text + fmt::format(" and {} more", names.size() - i);
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return text;
}

}  // namespace

Weights::Weights(const Source& source, kernels::cpu::Cpu& cpu) : source_(source), cpu_(cpu) {
  if (!source.gguf) {
    quantization_ = QuantizationConfig::parse(source.checkpoint.config, source.checkpoint.path);
  }
}

bool Weights::has(const std::string& name) const {
  return source_.checkpoint.find(source_.tensor_name(name)) != nullptr;
}

const TensorView* Weights::take(const std::string& name, const std::vector<int64_t>& shape) {
  const std::string stored = source_.tensor_name(name);
  const TensorView* view = source_.checkpoint.find(stored);
  if (view == nullptr) {
    missing_.push_back(stored);
    return nullptr;
  }
  used_.insert(stored);
  if (!shape.empty() && view->shape != shape) {
    wrong_.push_back(
        fmt::format("{} is {}, must be {}", stored, shape_text(view->shape), shape_text(shape)));
    return nullptr;
  }
  return view;
}

const PackedMatrix* Weights::matrix(const std::string& module, int rows, int cols, RowOrder order) {
  if (has(module + ".scales")) {
    store_.matrices.push_back(pack_affine(module, rows, cols, order));
  } else if (const TensorView* view = take(module + ".weight", {rows, cols})) {
    store_.matrices.push_back(pack(*view, rows, cols, order));
    source_.checkpoint.drop_pages(*view);
  } else {
    store_.matrices.emplace_back();
  }
  return &store_.matrices.back();
}

PackedMatrix Weights::pack(const TensorView& tensor, int rows, int cols, RowOrder order) {
  const auto row_bytes = static_cast<int64_t>(tensor.bytes.size()) / rows;
  const auto row_at = [&tensor, row_bytes, rows, order](int64_t row) {
    return tensor.bytes.data() + stored_row(order, rows, row) * row_bytes;
  };
  if (const auto type = number_type(tensor.type)) {
    return kernels::cpu::pack_dense(store_.arena, cpu_.pool(), rows, cols, *type, row_at);
  }
  if (const auto* format = kernels::cpu::block_format(info(tensor.type).name)) {
    return kernels::cpu::pack_quantized(store_.arena, cpu_.pool(), rows, cols, format->layout,
                                        [&](int64_t row, int64_t group, DecodedGroup& out) {
                                          format->decode(row_at(row), group, out);
                                        });
  }
  wrong_.push_back(
      fmt::format("{} has type {}, which is no weight type", tensor.name, info(tensor.type).name));
  return {};
}

PackedMatrix Weights::pack_affine(const std::string& module, int rows, int cols, RowOrder order) {
  quantization_.require_affine(source_.tensor_name(module));  // others have no biases to miss
  const TensorView* weight = take(module + ".weight", {});
  const TensorView* scales = take(module + ".scales", {});
  const TensorView* biases = take(module + ".biases", {});
  if (weight == nullptr || scales == nullptr || biases == nullptr) return {};
  const Quantization q =
      quantization_of(quantization_, source_.tensor_name(module), *weight, *scales, biases, cols);
  if (weight->shape != std::vector<int64_t>{rows, int64_t{cols} * q.bits / 32}) {
    wrong_.push_back(fmt::format("{} is {}, which is not {} x {} at {} bits", weight->name,
                                 shape_text(weight->shape), rows, cols, q.bits));
    return {};
  }
  const QuantLayout layout = affine_layout(q, *scales);
  const int64_t weight_row = int64_t{cols} * q.bits / 8, groups = cols / q.group_size;
  PackedMatrix packed = kernels::cpu::pack_quantized(
      store_.arena, cpu_.pool(), rows, cols, layout,
      [&](int64_t row, int64_t group, DecodedGroup& out) {
        const int64_t at = stored_row(order, rows, row);
        const std::byte* codes = weight->bytes.data() + at * weight_row;
        for (int64_t i = 0; i < kGroup; ++i) {
          out.codes[i] = static_cast<uint8_t>(
              read_bits(codes, static_cast<size_t>(group * kGroup + i), q.bits));
        }
        const int64_t g = at * groups + group * kGroup / q.group_size;
        out.scale[0] = out.scale[1] = load_float(layout.scale, scales->bytes.data(), g);
        out.min = load_float(layout.scale, biases->bytes.data(), g);
      });
  source_.checkpoint.drop_pages(*weight);
  return packed;
}

const float* Weights::vector(const std::string& name, int size, float offset, RowOrder order) {
  const TensorView* view = take(name, {size});
  if (view == nullptr) return nullptr;
  const auto type = number_type(view->type);
  if (!type) {
    wrong_.push_back(
        fmt::format("{} has type {}, must be F32, F16 or BF16", view->name, info(view->type).name));
    return nullptr;
  }
  std::vector<float>& out = store_.vectors.emplace_back(size);
  for (int i = 0; i < size; ++i) {
    out[i] = load_float(*type, view->bytes.data(), stored_row(order, size, i)) + offset;
  }
  return out.data();
}

const float* Weights::biases(bool stated, const std::vector<Bias>& biases) {
  const auto is_there = [&](const Bias& bias) { return has(bias.module + ".bias"); };
  if (source_.gguf ? std::ranges::none_of(biases, is_there) : !stated) return nullptr;
  std::vector<float> all;
  for (const auto& [module, size, order] : biases) {
    const float* part = vector(module + ".bias", size, 0, order);
    if (part != nullptr) all.insert(all.end(), part, part + size);
  }
  return store_.vectors.emplace_back(std::move(all)).data();
}

size_t packed_bytes(const Checkpoint& checkpoint) {
  const Source source(checkpoint);
  QuantizationConfig quantization;
  if (!checkpoint.gguf)
    quantization = QuantizationConfig::parse(checkpoint.config, checkpoint.path);
  size_t bytes = 0;
  for (const TensorView& tensor : checkpoint.tensors) {
    if (tensor.shape.size() != 2 || source.is_for_images(tensor.name)) continue;
    PackedMatrix matrix{.rows = static_cast<int>(tensor.shape[0]),
                        .cols = static_cast<int>(tensor.shape[1])};
    if (const auto* format = kernels::cpu::block_format(info(tensor.type).name)) {
      matrix.layout = format->layout;
    } else if (tensor.type == TensorType::kU32 && tensor.name.ends_with(".weight")) {
      const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
      const TensorView* scales = checkpoint.find(module + ".scales");
      const TensorView* biases = checkpoint.find(module + ".biases");
      if (scales == nullptr) continue;
      const Quantization q = quantization_of(quantization, module, tensor, *scales, biases);
      matrix.cols = static_cast<int>(tensor.shape[1] * 32 / q.bits);
      matrix.layout = affine_layout(q, *scales);
    } else if (const auto type = number_type(tensor.type);
               type && !tensor.name.ends_with(".scales") && !tensor.name.ends_with(".biases")) {
      matrix.dense = true;
      matrix.element = *type;
    } else {
      continue;
    }
    bytes += matrix.total_bytes();
  }
  return bytes;
}

WeightStore Weights::finish() {
  std::vector<std::string> unused;
  for (std::string_view name : source_.checkpoint.names()) {
    const bool expected =
        used_.contains(std::string(name)) || source_.is_for_images(name) ||
        std::any_of(ignored_.begin(), ignored_.end(),
                    [&](const std::string& ending) { return name.ends_with(ending); });
    if (!expected) unused.push_back(printable(name));
  }
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += fmt::format("; {}: {}", what, joined(names));
  };
  add("missing tensors", missing_);
  add("tensors of the wrong shape or type", wrong_);
  add("tensors that the model does not use", unused);
  if (!problems.empty()) {
    fail(ErrorKind::kInvalidRequest, "{}: not a whole {} checkpoint{}", source_.checkpoint.path,
         source_.family, problems);
  }
  return std::move(store_);
}

}  // namespace cohort::model
