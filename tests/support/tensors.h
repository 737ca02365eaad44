#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "model/safetensors.h"

namespace cohort::test {

/// Named tensors of a golden file, as vectors.
class Tensors {
 public:
  explicit Tensors(const std::string& path) : file_(path) {}

  bool has(const std::string& name) const { return find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const { return read<float>(name); }
  std::vector<int32_t> ints(const std::string& name) const { return read<int32_t>(name); }

  template <class T>
  std::vector<T> read(const std::string& name) const {
    const model::TensorView* tensor = find(name);
    if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
    std::vector<T> out(tensor->bytes.size() / sizeof(T));
    std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
    return out;
  }

 private:
  const model::TensorView* find(const std::string& name) const {
    for (const model::TensorView& tensor : file_.index.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  model::SafetensorsFile file_;
};

}  // namespace cohort::test
