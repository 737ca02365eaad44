// Row records: what is written can be read, and nothing else is believed.

#include "kv/row_record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include "base/error.h"
#include "tests/kv/fuzzed_models.h"

namespace cohort::kv::test {
namespace {

/// A row with a layer of each family.
struct Model : TestModel {
  explicit Model(size_t most_bytes = SIZE_MAX)
      : TestModel(fuzzed_models().back().specs(), fuzzed_models().back().precision(), most_bytes) {}
  RowCache restored(const Record& record) { return RowRecord(record).restore(memory, precision); }
};

/// The message of the refusal, "" if the record was restored. Whatever happens, no block is left.
std::string refusal_of(const Record& record, Model& model) {
  std::string message;
  try {
    RowCache row = model.restored(record);
    model.check({&row});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest) << error.what();
    message = error.what();
  }
  EXPECT_EQ(model.used_bytes(), 0U);
  return message;
}

TEST(RowRecord, ARowOfAllFamiliesComesBack) {
  for (const CacheForm form : {kPortable, kPaged}) {
    for (const int64_t offset : {0, 10, 63, 64, 150}) {
      Model model, other;
      RowCache row = model.row(offset);
      const boost::json::object about{{"model", "x"}, {"tokens", {1, 2, 3}}};
      const Record record = record_of(row, form, about);
      EXPECT_EQ(RowWriter(row, form, about).bytes(), record.size());
      EXPECT_EQ(RowRecord(record).about(), about);
      EXPECT_EQ(RowRecord(record).offset(), offset);
      RowCache copy = other.restored(record);
      EXPECT_TRUE(record_of(copy, form, about) == record);
      append(row, 100, model.cpu, 3);
      append(copy, 100, other.cpu, 3);
      for (size_t i = 0; i < row.layers(); ++i) {
        EXPECT_EQ(image(copy.layer(i)), image(row.layer(i))) << i;
      }
      other.check({&copy});
    }
  }
}

TEST(RowRecord, HoldsNothingOfRowsThatUsedTheMemoryBefore) {
  Model fresh, used;
  {
    RowCache other = used.memory.new_row(used.precision);
    append(other, 150, used.cpu, 9);
  }
  for (const CacheForm form : {kPortable, kPaged}) {
    EXPECT_TRUE(record_of(used.row(10), form) == record_of(fresh.row(10), form));
  }
}

TEST(RowRecord, TensorsAreAlignedAndWrittenInPiecesOfABlock) {
  Model model;
  const RowCache row = model.row(700);
  for (const CacheForm form : {kPortable, kPaged}) {
    const Record record = record_of(row, form);
    EXPECT_EQ(record.size() % 64, 0U);
    const boost::json::object header = header_of(record);
    for (const auto& tensor : header.at("tensors").as_array()) {
      EXPECT_EQ(tensor.at("offset").to_number<size_t>() % 64, 0U);
    }
    size_t largest = 0;
    size_t pieces = 0;
    RowWriter(row, form).write([&](Bytes piece) {
      if (pieces++ > 0) largest = std::max(largest, piece.size());  // the first is the header
    });
    EXPECT_LE(largest, 32U << 10);
  }
}

TEST(RowRecord, ACloneIsWrittenWhileItsRowGoesOn) {
  Model model;
  RowCache row = model.row(150);
  const Record wanted = record_of(row, kPortable);
  const RowCache clone = row.clone();
  Record record;
  size_t pieces = 0;
  RowWriter(clone, kPortable).write([&](Bytes piece) {
    record.insert(record.end(), piece.begin(), piece.end());
    if (pieces++ % 8 == 0) append(row, 3, model.cpu, 8);
  });
  EXPECT_TRUE(record == wanted);
}

TEST(RowRecord, ARecordCutAnywhereIsRefused) {
  Model model;
  for (const CacheForm form : {kPortable, kPaged}) {
    const Record whole = record_of(model.row(30), form);
    Record record = whole;
    record.push_back(std::byte{0});
    EXPECT_NE(refusal_of(record, model), "");
    const size_t step = form == kPortable ? 1 : 37;
    for (size_t size = 0; size < whole.size(); size += step) {
      record.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
      ASSERT_NE(refusal_of(record, model), "") << size;
      repair(record);
      ASSERT_NE(refusal_of(record, model), "") << size << " with a right checksum";
    }
  }
}

TEST(RowRecord, ChangedBytesAreFoundAndWithARightChecksumDoNoHarm) {
  Model model;
  std::mt19937 random(11);
  for (const CacheForm form : {kPortable, kPaged}) {
    const Record whole = record_of(model.row(30), form);
    for (size_t i = 0; i < whole.size(); i += 1 + (i > 4096 ? random() % 97 : 0)) {
      Record record = whole;
      record[i] ^= std::byte(1u << random() % 8);
      ASSERT_NE(refusal_of(record, model), "") << i;
      repair(record);
      refusal_of(record, model);
    }
  }
}

TEST(RowRecord, EveryFieldOfTheHeaderIsChecked) {
  Model model;
  const Record record = record_of(model.row(30), kPortable);
  using Object = boost::json::object;
  const auto refused = [&](const std::function<void(Object&)>& change) {
    Object header = header_of(record);
    change(header);
    return refusal_of(with_header(record, header), model);
  };
  EXPECT_EQ(refused([](Object&) {}), "");
  const auto tensor = [](Object& header, int i) -> Object& {
    return header["tensors"].at(i).as_object();
  };
  const auto contains = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  for (const char* key : {"about", "caches", "tensors"}) {
    contains(refused([&](Object& h) { h.erase(key); }), key);
    contains(refused([&](Object& h) { h[key] = 1; }), key);
  }
  for (const char* key : {"name", "dtype", "shape", "offset", "bytes"}) {
    contains(refused([&](Object& h) { tensor(h, 1).erase(key); }), key);
    contains(refused([&](Object& h) { tensor(h, 1)[key] = true; }), key);
  }
  contains(refused([&](Object& h) { tensor(h, 1)["dtype"] = "F8"; }), "dtype");
  contains(refused([&](Object& h) { tensor(h, 1)["name"] = "other"; }), "other");
  contains(refused([&](Object& h) { tensor(h, 1)["bytes"] = -1; }), "-1");
  contains(refused([&](Object& h) { tensor(h, 1)["bytes"] = 1; }), "1 bytes");
  contains(refused([&](Object& h) { tensor(h, 1)["offset"] = 0; }), "at 0");
  contains(refused([&](Object& h) { tensor(h, 1)["offset"] = INT64_MAX; }), "not the next");
  contains(refused([&](Object& h) { tensor(h, 1)["shape"] = {INT64_MAX, 4}; }), "bytes");
  contains(refused([&](Object& h) { tensor(h, 1)["shape"] = {1 << 30, 1 << 30, 1 << 30, 0}; }),
           "bytes");
  contains(refused([&](Object& h) { tensor(h, 1)["shape"] = {1, 1, 1, 1, 1, 1, 1, 1, 1}; }),
           "dimensions");
  contains(refused([&](Object& h) {
             tensor(h, 0)["shape"] = {INT64_MAX / 4};
             tensor(h, 0)["bytes"] = INT64_MAX / 4 * 4;
           }),
           "bytes");
  contains(refused([&](Object& h) { h["tensors"].as_array().pop_back(); }), "belong to no tensor");
  contains(refused([&](Object& h) { h["tensors"].as_array()[0] = 7; }), "no object");
  contains(refused([&](Object& h) { h["caches"].as_array()[0] = 7; }), "no object");
  contains(refused([&](Object& h) { h["caches"].as_array().pop_back(); }), "tensors of");
  contains(refused([&](Object& h) {
             h["caches"].as_array().clear();
             h["tensors"].as_array().clear();
           }),
           "belong to no tensor");
  contains(refused([&](Object& h) { h["caches"].at(1).as_object()["offset"] = 31; }), "31");
  contains(refused([&](Object& h) { h["caches"].at(1).as_object()["tensors"].at(0) = 0; }),
           "shares tensors");
  contains(refused([&](Object& h) { h["caches"].at(1).as_object()["kind"] = "mla"; }), "layer 1");
  contains(refused([&](Object& h) { std::swap(h["caches"].at(0), h["caches"].at(1)); }),
           "shares tensors");
}

TEST(RowRecord, TheFrameOfARecordIsChecked) {
  Model model;
  const Record record = record_of(model.row(30), kPortable);
  const auto contains = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  Record changed = record;
  changed[0] = std::byte{'c'};
  contains(refusal_of(changed, model), "COHORTKV");
  changed = record;
  changed[8] = std::byte{2};
  contains(refusal_of(changed, model), "version 2");
  changed = record;
  changed[12] ^= std::byte{1};
  contains(refusal_of(changed, model), "does not fit");
  changed = record;
  changed[15] = std::byte{0xff};
  contains(refusal_of(changed, model), "does not fit");
  changed = record;
  changed.back() ^= std::byte{1};
  contains(refusal_of(changed, model), "checksum");
}

/// Hands out a record piece by piece, and fails at its end as a file does.
Source source_of(const Record& record) {
  return [rest = Bytes(record)](std::span<std::byte> piece) mutable {
    if (piece.size() > rest.size()) fail(ErrorKind::kInvalidRequest, "the file ends early");
    std::ranges::copy(rest.first(piece.size()), piece.begin());
    rest = rest.subspan(piece.size());
  };
}

void fill(RowCache& row, const Record& record, size_t bytes) {
  RecordReader reader(bytes, source_of(record));
  RowHead(reader.head()).fill(row, reader);
}

TEST(RecordReader, FillsARowThatWasRestoredBeforeTheRecordWasSeen) {
  for (const CacheForm form : {kPortable, kPaged}) {
    for (const int64_t offset : {0, 10, 32, 64, 150}) {
      Model model, other;
      RowCache row = model.row(offset);
      const Record record = record_of(row, form);
      RowCache copy = other.row();
      copy.restore(offset, row.minimum_reusable_offset());
      fill(copy, record, record.size());
      other.check({&copy});
      EXPECT_TRUE(record_of(copy, form) == record);
      append(row, 100, model.cpu, 3);
      append(copy, 100, other.cpu, 3);
      EXPECT_TRUE(record_of(copy, form) == record_of(row, form));
      RecordReader(record.size(), source_of(record)).verify();
    }
  }
}

TEST(RecordReader, RefusesARowThatWasRestoredOtherwise) {
  Model model;
  const Record record = record_of(model.row(32), kPaged);
  for (const auto& [offset, reusable] : {std::pair{31, 0}, {33, 32}, {32, 0}, {0, 0}}) {
    RowCache row = model.row();
    row.restore(offset, reusable);
    EXPECT_THROW(fill(row, record, record.size()), Error) << offset;
  }
}

TEST(RecordReader, RefusesWhatIsCutOrChangedAnywhere) {
  Model model;
  std::mt19937 random(5);
  const Record whole = record_of(model.row(30), kPaged);
  const auto refused = [&](const Record& record) {
    RowCache row = model.row();
    row.restore(30, 0);
    EXPECT_THROW(RecordReader(record.size(), source_of(record)).verify(), Error);
    EXPECT_THROW(fill(row, record, record.size()), Error);
    EXPECT_THROW(fill(row, record, whole.size()), Error);
  };
  for (size_t i = 0; i < whole.size(); i += 1 + random() % 97) {
    Record record = whole;
    record[i] ^= std::byte(1u << random() % 8);
    refused(record);
    record = whole;
    record.resize(i);
    refused(record);
  }
}

TEST(RowRecord, ARestoreThatFindsNoMemoryGivesBackWhatItTook) {
  Model source;
  const RowCache row = source.row(150);
  for (const CacheForm form : {kPortable, kPaged}) {
    const Record record = record_of(row, form);
    for (size_t most = 0; most < 1 << 20; most += 16 << 10) {
      Model model(most);
      try {
        const RowCache copy = model.restored(record);
        model.check({&copy});
        EXPECT_EQ(model.used_bytes(), source.used_bytes());
        most = 1 << 20;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kOverloaded) << error.what();
        EXPECT_LT(most, 600U << 10);
      }
      EXPECT_EQ(model.used_bytes(), 0U);
      model.check({});
    }
  }
}

// COHORT_TEST_WRITE_SEEDS=1 writes them anew, which a change of the format needs.
TEST(RowRecord, SeedsOfTheFuzzerAreRecordsOfThisVersion) {
  for (const FuzzedModel& each : fuzzed_models()) {
    KvMemory memory(each.specs());
    kernels::cpu::Cpu cpu(1);
    for (const auto& [form, tokens] : {std::pair{kPortable, 9}, {kPaged, 64}}) {
      RowCache row = memory.new_row(each.precision());
      append(row, tokens, cpu);
      const Record record = record_of(row, form);
      const std::string path = fmt::format("{}/kv_record/{}-{}.bin", COHORT_CORPUS, each.name,
                                           form == kPaged ? "paged" : "portable");
      if (std::getenv("COHORT_TEST_WRITE_SEEDS") != nullptr) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(record.data()),
                   static_cast<std::streamsize>(record.size()));
      }
      std::ifstream file(path, std::ios::binary);
      const std::string found{std::istreambuf_iterator<char>(file), {}};
      const auto bytes = std::as_bytes(std::span(found));
      EXPECT_TRUE(std::ranges::equal(bytes, record)) << path;
    }
  }
}

}  // namespace
}  // namespace cohort::kv::test
