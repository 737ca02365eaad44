#pragma once

#include <boost/json.hpp>

#include <span>

#include "model/source.h"
#include "nn/rope.h"

namespace cohort::model {

/// The rotary embedding that a config describes: read_rope, every value checked.
///   object   in the form of "rope_parameters" or "rope_scaling"; null = plain
///   theta    where the object states none
///   factors  as of nn::Rope
///   throws   Error{kInvalidRequest} naming the key that is missing, out of range or at odds with
///            another; kUnsupported naming the type and those that exist
nn::Rope make_rope(const boost::json::object* object, double theta, const Source& source,
                   int64_t context_tokens, int dims, std::span<const float> factors = {});

}  // namespace cohort::model
