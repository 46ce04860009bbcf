#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "assay/error.h"
#include "support/content.h"
#include "support/failing_calls.h"
#include "support/temp_folder.h"

namespace assay::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

using test::content;

size_t n_files(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

void write_all(const fs::path& path, const std::string& text) {
  OutputFile file(path, text.size());
  file.write(bytes_of(text));
  file.close();
  file.commit();
}

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

TEST(OutputFile, TakesThePlaceOfTheOldFileAtTheEnd) {
  const test::TempFolder folder;
  const fs::path path = folder / "out";
  put(path, "old");
  const std::string text(3 << 20, 'x');  // several buffers
  OutputFile file(path, text.size() + 5);
  file.write(bytes_of(text));
  file.write_zeros(5);
  EXPECT_EQ(file.position(), text.size() + 5);
  EXPECT_EQ(content(path), "old");
  EXPECT_TRUE(fs::exists(folder / "out.partial"));
  file.close();
  EXPECT_EQ(content(path), "old");
  file.commit();
  EXPECT_EQ(content(path), text + std::string(5, '\0'));
  EXPECT_EQ(n_files(folder.path()), 1u);
}

TEST(OutputFile, LeavesNothingWithoutACommit) {
  const test::TempFolder folder;
  put(folder / "out", "old");
  {
    OutputFile file(folder / "out", 3);
    file.write(bytes_of("new"));
    file.close();
  }
  EXPECT_EQ(content(folder / "out"), "old");
  EXPECT_EQ(n_files(folder.path()), 1u);
}

TEST(OutputFile, EachCallThatFailsLeavesTheOldFile) {
  const test::TempFolder folder;
  const std::string text(2'500'000, 'y');
  test::fail_call(-1);
  write_all(folder / "out", text);
  const int n = test::n_calls();  // room, three writes, the file and its folder to the disk, the rename
  ASSERT_EQ(n, 7);
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (int i = 0; i < n; ++i) {
      put(folder / "out", "old");
      test::fail_call(i, error);
      const auto found = error_of([&] { write_all(folder / "out", text); });
      test::fail_call(-1);
      ASSERT_TRUE(found) << i;
      EXPECT_EQ(found->code, Errc::io);
      EXPECT_THAT(found->what(), HasSubstr(std::generic_category().message(error)));
      if (i + 1 < n) {  // the last is the folder's, after the rename
        EXPECT_EQ(content(folder / "out"), "old") << i;
      }
      EXPECT_EQ(n_files(folder.path()), 1u) << i;
    }
  }
}

TEST(OutputFile, AnInterruptedCallIsTriedAgain) {
  const test::TempFolder folder;
  test::fail_call(1, EINTR);
  write_all(folder / "out", "text");
  test::fail_call(-1);
  EXPECT_EQ(content(folder / "out"), "text");
}

TEST(OutputFile, AskForMoreRoomThanThereIs) {
  const test::TempFolder folder;
  const auto found = error_of([&] { OutputFile(folder / "out", uint64_t{1} << 60); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, Errc::io);
  EXPECT_THAT(found->what(), HasSubstr("out: needs 1152921504606846976 bytes; the disk has room for"));
  EXPECT_EQ(n_files(folder.path()), 0u);
}

TEST(OutputFile, WhatAKilledProcessLeftIsReplacedOrKept) {
  const test::TempFolder folder;
  put(folder / "out.partial", "abcdef");
  put(folder / "other", "other");
  write_all(folder / "out", "new");
  EXPECT_EQ(content(folder / "out"), "new");
  put(folder / "out.partial", "abcdef");
  {
    OutputFile file(folder / "out", 5, 3);
    EXPECT_EQ(file.position(), 3u);
    file.write(bytes_of("xy"));
    file.commit();
  }
  EXPECT_EQ(content(folder / "out"), "abcxy");
  // Another name of a file that is needed: the name goes, the file stays.
  fs::create_hard_link(folder / "other", folder / "out.partial");
  write_all(folder / "out", "new");
  fs::create_symlink(folder / "other", folder / "out.partial");
  write_all(folder / "out", "newer");
  EXPECT_EQ(content(folder / "other"), "other");
}

TEST(OutputFile, ALinkStaysALink) {
  const test::TempFolder folder;
  put(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_all(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(content(folder / "target"), "new");
}

TEST(OutputFile, KeepsTheModeOfWhatItReplaces) {
  const test::TempFolder folder;
  put(folder / "out", "old");
  ::chmod((folder / "out").c_str(), 0600);
  write_all(folder / "out", "new");
  struct stat info {};
  ASSERT_EQ(::stat((folder / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST(OutputFile, RefusesWhatIsNoFile) {
  const test::TempFolder folder;
  fs::create_directory(folder / "out");
  for (const fs::path& path : {folder / "out", fs::path("/dev/null")}) {
    const auto found = error_of([&] { OutputFile(path, 1); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->code, Errc::bad_request);
    EXPECT_THAT(found->what(), HasSubstr("is no regular file"));
  }
  const auto found = error_of([&] { OutputFile(folder / "none" / "out", 1); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, Errc::io);
}

TEST(OutputFile, OneWriterAtATime) {
  const test::TempFolder folder;
  OutputFile file(folder / "out", 3);
  const auto found = error_of([&] { OutputFile(folder / "out", 3); });
  ASSERT_TRUE(found);
  EXPECT_THAT(found->what(), HasSubstr("another process is writing it"));
  file.write(bytes_of("one"));
  file.commit();
  EXPECT_EQ(content(folder / "out"), "one");
}

TEST(OutputFile, OutIsNotIn) {
  const test::TempFolder folder;
  put(folder / "in", "text");
  fs::create_symlink("in", folder / "link");
  fs::create_hard_link(folder / "in", folder / "name");
  fs::create_hard_link(folder / "in", folder / "out.partial");
  for (const char* out : {"in", "link", "name", "out", "./in"}) {
    const auto found = error_of([&] { require_other_file(folder / "in", folder / out); });
    ASSERT_TRUE(found) << out;
    EXPECT_EQ(found->code, Errc::bad_request);
  }
  EXPECT_FALSE(error_of([&] { require_other_file(folder / "in", folder / "new"); }));
}

}  // namespace
}  // namespace assay::base
