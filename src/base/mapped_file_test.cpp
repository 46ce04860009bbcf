#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>

#include "assay/error.h"
#include "support/temp_folder.h"

namespace assay::base {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::optional<Errc> refusal(const fs::path& path) {
    try {
      MappedFile file(path);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      return error.code;
    }
    return std::nullopt;
  }
  // Of the map that has this address; none where the system does not tell (an emulator).
  static std::optional<int64_t> resident_kib(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool is_here = false;
    while (std::getline(maps, line)) {
      unsigned long long begin = 0, end = 0;
      if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
        is_here = begin <= std::bit_cast<uintptr_t>(address) && std::bit_cast<uintptr_t>(address) < end;
      }
      if (is_here && line.starts_with("Rss:")) return std::stoll(line.substr(4));
    }
    return std::nullopt;
  }
  test::TempFolder folder_;
};

TEST_F(MappedFileTest, PartsLookedAtAndGivenBackTakeNoMemory) {
  const fs::path path = write("large", "");
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 32; ++i) out << std::string(1 << 20, 'x') << std::flush;
  out.close();
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  constexpr size_t kPart = 100'000;  // ends within a page, and far from where the system begins to map
  for (size_t at = 0; at < bytes.size(); at += kPart) {
    const std::span<const std::byte> part = bytes.subspan(at, std::min(kPart, bytes.size() - at));
    ASSERT_EQ(part.front(), std::byte{'x'});
    file.drop(part);
  }
  const std::optional<int64_t> resident = resident_kib(bytes.data());
  if (!resident) GTEST_SKIP() << "/proc/self/smaps does not have the map";
  EXPECT_LE(*resident, 256);
}

TEST_F(MappedFileTest, ShowsTheBytes) {
  MappedFile file(write("a", "some bytes"));
  ASSERT_EQ(file.bytes().size(), 10u);
  EXPECT_EQ(std::memcmp(file.bytes().data(), "some bytes", 10), 0);
  MappedFile moved = std::move(file);
  EXPECT_TRUE(file.bytes().empty());  // NOLINT: the state after a move is part of the test
  EXPECT_EQ(moved.bytes().size(), 10u);
  moved.check_size();
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(refusal(folder_ / "missing"), Errc::io);
  EXPECT_EQ(refusal(folder_.path()), Errc::io);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folder_ / "pipe"), Errc::io);
  EXPECT_EQ(refusal("/dev/zero"), Errc::io);
  EXPECT_EQ(refusal("/dev/null"), Errc::io);
  EXPECT_EQ(refusal(write("empty", "")), Errc::bad_file);
}

TEST_F(MappedFileTest, RefusesWhatMayNotBeRead) {
  const fs::path path = write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  const bool root = geteuid() == 0;  // who may read everything: so be somebody else for a moment
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  EXPECT_EQ(refusal(path), Errc::io);
  ASSERT_TRUE(!root || seteuid(0) == 0);
}

TEST_F(MappedFileTest, NoticesThatTheFileWasCut) {
  const fs::path path = write("cut", std::string(20'000, 'x'));
  const MappedFile file(path);
  file.check_size();
  fs::resize_file(path, 10);
  EXPECT_THROW(file.check_size(), Error);
}

TEST_F(MappedFileTest, OutlivesAReplacement) {
  const fs::path path = write("old", "old");
  const MappedFile file(path);
  fs::rename(write("new", "something new"), path);
  file.check_size();
  EXPECT_EQ(std::memcmp(file.bytes().data(), "old", 3), 0);
}

}  // namespace
}  // namespace assay::base
