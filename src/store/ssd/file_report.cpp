#include "store/ssd/file_report.h"

#include "base/error.h"
#include "store/ssd/saved_object.h"
#include "store/ssd/saved_prefix.h"

namespace cohort::store {

std::optional<FileReport> report_on(const CacheFolder& folder, const std::string& file, bool all) {
  FileReport report;
  try {
    const FileLease lease = folder.lease(file);
    kv::RecordReader record(lease.bytes(), [&](std::span<std::byte> into) { lease.read(into); });
    report.identity = identity_of(record.head());
    report.object = holds_object(record.head());
    if (report.object) {
      key_of(record.head(), report.identity);
    } else {
      const kv::RowHead row(record.head());
      report.tokens = row.offset();
      prefix_of(row, report.identity);
    }
    if (all) record.verify();
    if (!file.starts_with(group_of(report.identity))) report.fault = "in a folder of others";
  } catch (const std::exception& error) {
    // A message about a damaged file may hold parts of somebody's text.
    if (kind_of(error) == ErrorKind::kNotFound) return std::nullopt;
    report.damaged = kind_of(error) == ErrorKind::kInvalidRequest;
    report.fault = report.damaged ? "damaged" : error.what();
  }
  return report;
}

}  // namespace cohort::store
