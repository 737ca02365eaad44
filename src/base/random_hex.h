#pragma once

#include <string>

namespace cohort {

/// Random lower-case hex digits, for ids that nobody may guess or meet twice.
std::string random_hex(size_t digits);

}  // namespace cohort
