#include "text/template_worker.h"

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <string_view>

#include "text/frames.h"
#include "text/textkit_calls.h"

namespace cohort::text {
namespace {

constexpr int kSocket = STDIN_FILENO;

bool main_began_here = false;  // written before there is a second thread

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// The address space that the program and its libraries take: with CUDA's, more than a template
/// may.
///   source  proc(5), /proc/self/statm
uint64_t mapped_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void bound_resources() {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);  // it would hold what people wrote
  if (kSanitized) {                 // they need much address space, and report crashes at length
    for (const int crash : {SIGSEGV, SIGBUS}) std::signal(crash, SIG_DFL);
  } else {
    const rlim_t most = mapped_bytes() + kTemplateMemoryBytes;
    const rlimit memory{.rlim_cur = most, .rlim_max = most};
    ::setrlimit(RLIMIT_AS, &memory);
  }
}

/// While one lives, the process ends by itself at some time after the parent would have killed it:
/// should the parent be gone, nobody else ends a template that runs for ever.
struct Alarm {
  Alarm() { ::alarm(static_cast<unsigned>(2 * kRenderTime.count())); }
  ~Alarm() { ::alarm(0); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
};

bool receive(Frame& frame) {
  return receive_frame(kSocket, frame, UINT64_MAX, Deadline::max()) == Transfer::kDone;
}

bool answer(int32_t status, TkText text) {
  return send_frame(kSocket, status, take(text), Deadline::max()) == Transfer::kDone;
}

/// The first frame is the source, each further one the variables of a render.
void serve() {
  Frame frame;
  if (!receive(frame)) return;
  TkTemplate* compiled = nullptr;
  {
    const Alarm alarm;
    TkText error{};
    const int32_t status = tk_template_new(to_tk(frame.bytes), &compiled, &error);
    if (!answer(status, error) || status != 0) return;
  }
  while (receive(frame)) {
    const Alarm alarm;
    TkText text{}, error{};
    const int32_t status = tk_template_render(compiled, to_tk(frame.bytes), &text, &error);
    if (!answer(status, status == 0 ? text : error)) return;
  }
}

}  // namespace

std::optional<int> serve_as_template_worker(int argc, char** argv) {
  main_began_here = true;
  if (argc != 2 || std::string_view(argv[1]) != kTemplateWorkerArgument) return std::nullopt;
#ifdef __linux__
  ::prctl(PR_SET_NAME, "cohort-template");  // instead of "exe", in lists of processes
#endif
  bound_resources();
  serve();
  return 0;
}

bool can_start_template_worker() {
  return main_began_here;
}

}  // namespace cohort::text
