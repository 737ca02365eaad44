#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_view.h"

namespace cohort::model {

/// The tensors of one safetensors file, every one checked against the file's size.
///   source  safetensors format: huggingface.co/docs/safetensors
struct SafetensorsIndex {
  std::vector<TensorView> tensors;              // in the order of the header
  std::map<std::string, std::string> metadata;  // `__metadata__`

  /// Reads the header of a whole file.
  ///   bytes   the file; the tensors point into it
  ///   file    its name, for errors
  ///   throws  Error{kInvalidRequest} naming file, tensor and reason; kUnsupported for a dtype that
  ///           the format has and Cohort has not
  ///   thread  any
  static SafetensorsIndex parse(std::span<const std::byte> bytes, std::string_view file);
};

using SafetensorsFile = IndexedFile<SafetensorsIndex>;

}  // namespace cohort::model
