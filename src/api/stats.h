#pragma once

#include <boost/json.hpp>

#include "kv/fit.h"

namespace cohort::api {

/// What a way to store keys and values takes, or why the model cannot have it.
boost::json::object describe(const kv::SchemeSummary& scheme);

}  // namespace cohort::api
