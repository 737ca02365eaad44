#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "app/commands.h"
#include "base/error.h"
#include "base/printable.h"
#include "store/hub/progress.h"
#include "store/ssd/cache_folder.h"
#include "store/ssd/file_report.h"

namespace cohort::app {
namespace {

using store::CachedFile;
using store::CacheFolder;
using store::format_bytes;

void print_total(size_t files, uint64_t bytes) {
  fmt::print("{} file{}, {}\n", files, files == 1 ? "" : "s", format_bytes(bytes));
}

int list(const CacheFolder& folder) {
  uint64_t bytes = 0;
  size_t files = 0;
  std::string identity;
  for (const CachedFile& file : folder.list()) {
    const auto report = store::report_on(folder, file.name, false);
    if (!report) continue;
    if (report->identity != identity) fmt::print("{}\n", printable(report->identity));
    identity = report->identity;
    const auto used = static_cast<std::time_t>(file.used_ns / 1'000'000'000);
    const std::string what = report->object ? "object" : fmt::format("{} tokens", report->tokens);
    fmt::print("  {:%Y-%m-%d %H:%M}  {:>14}  {:>9}  {}  {}\n", fmt::localtime(used), what,
               format_bytes(file.bytes), file.name,
               file.temporary ? "left by a writer that died" : report->fault);
    bytes += file.bytes;
    ++files;
  }
  print_total(files, bytes);
  return 0;
}

int verify(const CacheFolder& folder) {
  uint64_t bytes = 0;
  size_t files = 0, faults = 0;
  for (const CachedFile& file : folder.list()) {
    if (file.temporary) continue;
    const auto report = store::report_on(folder, file.name, true);
    if (!report) continue;
    if (!report->fault.empty()) fmt::print("{}: {}\n", file.name, report->fault);
    faults += !report->fault.empty();
    bytes += file.bytes;
    ++files;
  }
  print_total(files, bytes);
  return faults == 0 ? 0 : 1;
}

int collect_garbage(const CacheFolder& folder, const Settings& settings) {
  uint64_t before = 0, after = 0;
  for (const CachedFile& file : folder.list()) before += file.bytes;
  folder.sweep();
  for (const CachedFile& file : folder.list()) {
    if (file.temporary) continue;
    const auto report = store::report_on(folder, file.name, true);
    if (report && report->damaged) folder.remove(file.name);
  }
  // Only if asked: a server with another limit may own what goes beyond this one.
  if (settings.ssd_cache_max.value_or(0) > 0) {
    folder.make_room(uint64_t{static_cast<uint32_t>(*settings.ssd_cache_max)} << 30);
  }
  for (const CachedFile& file : folder.list()) after += file.bytes;
  fmt::print("removed {}, {} left\n", format_bytes(before - std::min(before, after)),
             format_bytes(after));
  return 0;
}

}  // namespace

int run_cache(const Settings& settings, const CacheOptions& options) {
  if (settings.ssd_cache.empty()) {
    fail(ErrorKind::kInvalidRequest, "say where the cache is: --ssd-cache DIR");
  }
  if (!std::filesystem::is_directory(settings.ssd_cache)) {
    fail(ErrorKind::kNotFound, "there is no folder {}", printable(settings.ssd_cache));
  }
  const CacheFolder folder(settings.ssd_cache);
  if (options.action == "verify") return verify(folder);
  if (options.action == "gc") return collect_garbage(folder, settings);
  return list(folder);
}

}  // namespace cohort::app
