#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace cohort {
namespace {

TEST(MappedFile, DroppedPagesReadAsBefore) {
  std::string path = (std::filesystem::temp_directory_path() / "cohort-mapped-XXXXXX").string();
  const int descriptor = ::mkstemp(path.data());
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  std::string content;
  for (int i = 0; i < 50'000; ++i) content += static_cast<char>('a' + i % 23);
  std::ofstream(path, std::ios::binary) << content;
  const MappedFile file(path);
  const auto text = [&file] {
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  };
  EXPECT_EQ(text(), content);
  file.drop_pages(file.bytes());
  file.drop_pages(file.bytes().subspan(4095, 9000));
  file.drop_pages(file.bytes().subspan(1, 1));
  file.drop_pages(file.bytes().last(0));
  EXPECT_EQ(text(), content);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cohort
