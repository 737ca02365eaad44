#include <cstdlib>

#include "base/error.h"
#include "tests/kv/fuzzed_models.h"

namespace {

using namespace cohort;
using namespace cohort::kv;

constexpr size_t kMostBytes = size_t{16} << 20;

void expect(bool holds) {
  if (!holds) std::abort();
}

/// Restores the record into a model of its own, if it is of that model.
void restore(const RowRecord& record, const test::FuzzedModel& model, kernels::cpu::Cpu& cpu) {
  KvMemory memory(model.specs(), kMostBytes);
  try {
    RowCache row = record.restore(memory, model.precision());
    expect(row.offset() == record.offset());
    for (const CacheForm form : {kPortable, kPaged}) {
      expect(test::record_of(row, form).size() == RowWriter(row, form).bytes());
    }
    const test::Record saved = test::record_of(row, kPortable);
    const RowCache copy = RowRecord(saved).restore(memory, model.precision());
    expect(test::record_of(copy, kPortable) == saved);
    row.maintain(cpu);
    test::append(row, 3, cpu);
    BlockCensus census;
    row.check_integrity(census);
    copy.check_integrity(census);
    memory.pools().check_integrity(census);
  } catch (const Error& error) {
    expect(error.kind() != ErrorKind::kInternal);
  }
  expect(memory.pools().used_bytes() == 0);
  memory.pools().check_integrity({});
}

void read(const test::Record& bytes) {
  static const std::vector<test::FuzzedModel> models = test::fuzzed_models();
  static kernels::cpu::Cpu cpu(1);
  try {
    const RowRecord record(bytes);
    for (const test::FuzzedModel& model : models) restore(record, model, cpu);
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kInvalidRequest);
  }
}

}  // namespace

/// Any bytes, also with a right checksum, are either refused with an Error or become a row that
/// can be saved and goes on; no block is left either way.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  test::Record record(bytes.begin(), bytes.end());
  read(record);
  test::repair(record);
  read(record);
  return 0;
}
