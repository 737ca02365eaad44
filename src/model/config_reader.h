#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::model {

/// Reads a config object key by key; every value is checked for type and range.
///   throws  Error{kInvalidRequest} naming the file, the key and what is allowed
class ConfigReader {
 public:
  /// Refers to both objects.
  ///   defaults  if not null, holds for keys that the config leaves out
  ConfigReader(const boost::json::object& config, std::string_view file,
               const boost::json::object* defaults = nullptr)
      : config_(config), defaults_(defaults), file_(file) {}

  struct Range {
    int64_t low, high;  // inclusive
  };
  /// The integer at `key`, or `fallback`; without a fallback the key must be there.
  int64_t integer(std::string_view key, Range range, std::optional<int64_t> fallback = {}) const;
  /// A number > 0 that is one as a float, too.
  double positive(std::string_view key, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  /// Accepts a setting of which this build has one variant: that one, or nothing at `key`.
  ///   throws  Error{kUnsupported} naming any other
  void only(std::string_view key, std::string_view supported) const;
  /// The object at `key`, or nullptr if absent or null.
  const boost::json::object* object(std::string_view key) const;
  const boost::json::array* array(std::string_view key) const;

 private:
  const boost::json::value* find(std::string_view key) const;
  [[noreturn]] void fail_key(std::string_view key, std::string_view wanted) const;

  const boost::json::object& config_;
  const boost::json::object* defaults_;
  std::string file_;
};

}  // namespace cohort::model
