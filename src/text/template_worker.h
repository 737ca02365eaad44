#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

// A chat template comes with a model and may be hostile: it can overflow the stack, and compute
// and allocate without end. So it is compiled and run in a process of its own, the worker, which
// TemplateProcess starts from this same program and kills when it takes too long.

namespace cohort::text {

constexpr std::chrono::seconds kRenderTime{3};       // a long chat takes a hundredth of it
constexpr std::chrono::seconds kTurnTime{1};         // that a caller waits for others
constexpr uint64_t kTemplateMemoryBytes = 1U << 30;  // of address space, beside the program's own

/// What the worker is started with as its only argument.
inline constexpr const char* kTemplateWorkerArgument = "--chat-template-worker";

/// Where main() of a program that uses ChatTemplate begins. In a worker, serves the parent over
/// standard input until that ends, in bounded memory, with no way to anything else of the parent.
///   returns  the exit status of a worker; nothing in any other process
std::optional<int> serve_as_template_worker(int argc, char** argv);

/// Whether main() began as it must: a program that does not would start itself again and again.
bool can_start_template_worker();

}  // namespace cohort::text
