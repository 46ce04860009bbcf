#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
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
  test::TempFolder folder_;
};

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
