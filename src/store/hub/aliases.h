#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace cohort::store {

/// A file inside a Python wheel.
struct WheelMember {
  const char* requirement;  // name==version
  const char* path;         // inside the wheel
};

/// A starter model that Python wheels ship: its members, concatenated, are one GGUF file.
struct Alias {
  const char* name;
  const char* file;
  uint64_t size_bytes;
  const char* sha256;
  std::span<const WheelMember> members;
};

std::span<const Alias> aliases();

/// The alias of that name, or null.
const Alias* find_alias(std::string_view name);

}  // namespace cohort::store
