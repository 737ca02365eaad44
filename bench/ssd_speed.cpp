// How fast the SSD cache writes and restores a row, and what that costs the engine thread.
// Usage: ssd_speed FOLDER [TOKENS [LAYERS]]: 8 kv heads of 128 channels in bf16, 4 KB a layer and
// token.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/say.h"
#include "store/ssd/ssd_store.h"

namespace cohort::store {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A row of bytes that no file system can make smaller.
kv::RowCache filled_row(kv::KvMemory& memory, const kv::RowPrecision& precision, int64_t tokens) {
  kv::RowCache row = memory.new_row(precision);
  row.restore(tokens, 0);
  uint64_t state = 1;
  for (size_t i = 0; i < row.layers(); ++i) {
    kv::AttentionCache& layer = row.attention(i);
    for (size_t b = 0; b < layer.blocks(); ++b) {
      for (size_t at = 0; at < layer.geometry().block_bytes(); at += 8) {
        state = state * 6364136223846793005 + 1442695040888963407;
        std::memcpy(layer.restored_block(b) + at, &state, 8);
      }
    }
  }
  return row;
}

void drop_from_page_cache(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const Descriptor fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void restore_once(SsdStore& store, kv::KvMemory& memory, const kv::RowPrecision& precision,
                  std::span<const int32_t> ids, double gigabytes, const char* how) {
  const auto begin = Clock::now();
  store.restore(store.longest("", ids).value(), memory.new_row(precision));
  const double taken = seconds_since(begin);
  double collected = 0;
  for (bool done = false; !done; std::this_thread::sleep_for(200us)) {
    const auto at = Clock::now();
    const auto found = store.collect();
    done = !found.empty();
    if (done) collected = seconds_since(at);
    if (done && !found.front().row) say("the row is lost\n");
  }
  const double all = seconds_since(begin);
  fmt::print(
      "restore, {}: {:.2f} GB/s ({:.0f} ms); engine thread: restore {:.2f} ms, collect "
      "{:.2f} ms\n",
      how, gigabytes / all, all * 1e3, taken * 1e3, collected * 1e3);
}

void run(const std::filesystem::path& folder, int64_t tokens, int layers) {
  const auto bf16 = kernels::cpu::dense_kv(true);
  kv::KvMemory memory(std::vector<kv::AnyLayerSpec>(layers, kv::LayerSpec{8, 128}));
  const kv::RowPrecision precision(layers, {bf16, bf16, 0});
  std::vector<int32_t> ids(static_cast<size_t>(tokens) + 1);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % 50000);
  SsdStore store({.folder = folder, .identity = "ssd_speed", .most_pending_bytes = SIZE_MAX});
  store.flush(60s);
  const kv::RowCache row = filled_row(memory, precision, tokens);
  auto begin = Clock::now();
  store.offer("", ids, row.clone());
  const double offered = seconds_since(begin);
  if (!store.flush(600s)) say("the row was not written\n");
  const double written = seconds_since(begin);
  begin = Clock::now();
  store.collect();
  const double collected = seconds_since(begin);
  const double gigabytes = static_cast<double>(store.stats().bytes) / 1e9;
  fmt::print(
      "{:.2f} GB\nwrite, fsync included: {:.2f} GB/s ({:.0f} ms); engine thread: offer "
      "{:.2f} ms, collect {:.2f} ms\n",
      gigabytes, gigabytes / written, written * 1e3, offered * 1e3, collected * 1e3);
  restore_once(store, memory, precision, ids, gigabytes, "from the page cache");
  drop_from_page_cache(folder);
  restore_once(store, memory, precision, ids, gigabytes, "from the disk");
}

}  // namespace
}  // namespace cohort::store

int main(int argc, char** argv) {
  if (argc < 2) {
    cohort::say("usage: ssd_speed FOLDER [TOKENS [LAYERS]]\n");
    return 2;
  }
  cohort::store::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 8192,
                     argc > 3 ? std::atoi(argv[3]) : 32);
  return 0;
}
