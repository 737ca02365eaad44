#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "store/object_cache.h"

namespace cohort::store::test {

/// A tensor of random bytes.
inline ObjectTensor some_tensor(const std::string& name, kv::SavedType type,
                                std::vector<int64_t> shape, uint32_t seed) {
  ObjectTensor tensor{{name, type, std::move(shape)}, {}};
  tensor.bytes.resize(tensor.spec.bytes());
  std::mt19937 random(seed);
  for (std::byte& each : tensor.bytes) each = static_cast<std::byte>(random());
  return tensor;
}

/// An object of `rows` KiB of features and a little more, of that seed alone.
inline ObjectLease some_object(uint32_t seed, int64_t rows = 4) {
  Object object{"features 1", {{"seed", seed}, {"size", {336, 224}}, {"note", "caf\u00e9"}}, {}};
  object.tensors.push_back(some_tensor("features", kv::SavedType::kF32, {rows, 256}, seed));
  object.tensors.push_back(some_tensor("positions", kv::SavedType::kI8, {rows, 3}, seed + 1));
  return std::make_shared<const Object>(std::move(object));
}

}  // namespace cohort::store::test
