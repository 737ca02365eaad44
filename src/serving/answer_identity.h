#pragma once

#include "engine/request.h"
#include "engine/sampler.h"
#include "store/ssd/saved_prefix.h"

namespace cohort::serving {

/// What the answer to a request is known by, before its first token: who asked under which id, and
/// all that decides its tokens beside the model.
///   sampling  of the request, resolved: the defaults of another start may be others
///   space     of its prefixes
store::Generation answer_identity(const engine::Request& request,
                                  const engine::SamplingParams& sampling,
                                  const store::Namespace& space);

}  // namespace cohort::serving
