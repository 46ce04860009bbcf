// Malformed splits and paths, by their ids in the project's list of bad inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "assay/error.h"
#include "gguf/file.h"
#include "programs/patience.h"
#include "support/gguf_writer.h"
#include "support/temp_folder.h"

namespace assay::gguf {
namespace {

namespace fs = std::filesystem;
using test::GgufWriter;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const fs::path& path, Errc code = Errc::bad_file) {
  const auto begin = std::chrono::steady_clock::now();
  std::string message = "accepted";
  try {
    File::open(path);
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(static_cast<int>(error.code), static_cast<int>(code)) << message;
  }
  EXPECT_NE(message, "accepted");
  EXPECT_LE(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(2 * test::kPatience))
      << message;  // a pipe or device would block for ever
  return message;
}

GgufWriter shard(uint32_t number, uint32_t count, const std::string& tensor, int n_tensors) {
  GgufWriter writer;
  writer.set("split.no", static_cast<uint16_t>(number)).set("split.count", static_cast<uint16_t>(count));
  writer.set("split.tensors.count", n_tensors).tensor(tensor, {3}, {1, 2, 3});
  return writer;
}

class BadSplit : public ::testing::Test {
 protected:
  fs::path first() const { return folder_ / "m-00001-of-00002.gguf"; }
  fs::path second() const { return folder_ / "m-00002-of-00002.gguf"; }
  test::TempFolder folder_;
};

TEST_F(BadSplit, B24_Counts) {
  shard(0, 0, "a", 1).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("'split.count' is 0; 1 to 1024 are possible"));
  shard(0, 65'535, "a", 1).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("'split.count' is 65535"));
  GgufWriter().set("split.no", uint16_t{0}).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("the other"));
  GgufWriter().set("split.no", int16_t{-1}).set("split.count", uint16_t{2}).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("'split.no' is -1"));
  shard(2, 2, "a", 1).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("'split.no' is 2 of 2 shards"));
}

TEST_F(BadSplit, CountZeroIsAFileThatWasMerged) {  // llama-gguf-split --merge leaves the keys, with a count of 0
  shard(0, 0, "a", 1).write(folder_ / "m.gguf");
  EXPECT_EQ(File::open(folder_ / "m.gguf").tensors().size(), 1u);
  shard(1, 0, "a", 1).write(folder_ / "m.gguf");
  EXPECT_THAT(refusal(folder_ / "m.gguf"), HasSubstr("'split.count' is 0"));
}

TEST_F(BadSplit, B24_MissingShard) {
  shard(0, 2, "a", 2).write(first());
  EXPECT_THAT(refusal(first(), Errc::io), HasSubstr("m-00002-of-00002.gguf: cannot be opened"));
}

TEST_F(BadSplit, B24_SameTensorTwice) {
  shard(0, 2, "a", 2).write(first());
  shard(1, 2, "a", 2).write(second());
  EXPECT_THAT(refusal(first()), HasSubstr("tensor 'a' is in shard 1 and again in shard 2"));
}

TEST_F(BadSplit, B24_NumberDoesNotMatchTheName) {
  shard(0, 2, "a", 2).write(first());
  shard(0, 2, "b", 2).write(second());
  EXPECT_THAT(refusal(first()), HasSubstr("does not say that it is shard 2 of 2"));
  shard(1, 3, "b", 2).write(second());
  EXPECT_THAT(refusal(first()), HasSubstr("does not say that it is shard 2 of 2"));
  GgufWriter().tensor("b", {1}, {1}).write(second());
  EXPECT_THAT(refusal(first()), HasSubstr("does not say that it is shard 2 of 2"));
  shard(1, 2, "a", 2).write(first());
  EXPECT_THAT(refusal(first()), HasSubstr("its name must end in -00002-of-00002.gguf"));
  shard(0, 2, "a", 2).write(folder_ / "model.gguf");
  EXPECT_THAT(refusal(folder_ / "model.gguf"), HasSubstr("its name must end in -00001-of-00002.gguf"));
}

TEST_F(BadSplit, B24_NotTheFirst) {
  shard(1, 2, "b", 2).write(second());
  EXPECT_THAT(refusal(second(), Errc::bad_request),
              HasSubstr("name the first one, which ends in -00001-of-00002.gguf"));
}

TEST_F(BadSplit, B24_NumberOfTensors) {
  shard(0, 2, "a", 3).write(first());
  shard(1, 2, "b", 3).write(second());
  EXPECT_THAT(refusal(first()), HasSubstr("'split.tensors.count' is 3; its shards have 2"));
}

TEST_F(BadSplit, ABrokenShardIsNamed) {
  shard(0, 2, "a", 2).write(first());
  std::ofstream(second()) << "GGUF";
  EXPECT_THAT(refusal(first()), HasSubstr("m-00002-of-00002.gguf: the version"));
}

TEST(BadPath, B86_NothingBlocksAndNothingIsTold) {
  const test::TempFolder folder;
  std::ofstream(folder / "secret") << "password: hunter2 and more of it";
  EXPECT_THAT(refusal(folder / "secret"), AllOf(HasSubstr("no GGUF file"), Not(HasSubstr("pass"))));
  fs::create_symlink("secret", folder / "link");
  EXPECT_THAT(refusal(folder / "link"), AllOf(HasSubstr("no GGUF file"), Not(HasSubstr("pass"))));
  fs::create_symlink("loop", folder / "loop");
  refusal(folder / "loop", Errc::io);
  for (const char* device : {"/dev/random", "/dev/zero", "/dev/null"})
    EXPECT_THAT(refusal(device, Errc::io), HasSubstr("is a device"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder / "pipe", Errc::io), HasSubstr("is a pipe"));
  EXPECT_THAT(refusal(folder.path(), Errc::io), HasSubstr("is a folder"));
}

TEST(BadPath, B91_Files) {
  const test::TempFolder folder;
  EXPECT_THAT(refusal(folder / "missing.gguf", Errc::io), HasSubstr("missing.gguf: cannot be opened: No such file"));
  std::ofstream(folder / "empty.gguf").flush();
  EXPECT_THAT(refusal(folder / "empty.gguf"), HasSubstr("is empty"));
  GgufWriter().tensor("a", {1}, {1}).write(folder / "closed.gguf");
  ASSERT_EQ(chmod((folder / "closed.gguf").c_str(), 0), 0);
  const bool root = geteuid() == 0;  // who may read everything: so be somebody else for a moment
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  EXPECT_THAT(refusal(folder / "closed.gguf", Errc::io), HasSubstr("Permission denied"));
  ASSERT_TRUE(!root || seteuid(0) == 0);
}

TEST(BadPath, B91_SparseTerabyte) {
  const test::TempFolder folder;
  std::error_code refused;
  std::ofstream(folder / "zeros.gguf").flush();
  fs::resize_file(folder / "zeros.gguf", uint64_t{1} << 40, refused);
  if (refused) GTEST_SKIP() << "this file system takes no sparse file of a terabyte: " << refused.message();
  EXPECT_THAT(refusal(folder / "zeros.gguf"), HasSubstr("no GGUF file"));
  GgufWriter().tensor("a", {8}, std::vector<float>(8)).write(folder / "large.gguf");
  fs::resize_file(folder / "large.gguf", uint64_t{1} << 40);
  EXPECT_THAT(refusal(folder / "large.gguf"), HasSubstr("bytes after the data of its last tensor"));
}

TEST(BadPath, B91_CutOrReplacedWhileInUse) {
  const test::TempFolder folder;
  const fs::path path = folder / "m.gguf";
  GgufWriter().tensor("a", {4096}, std::vector<float>(4096, 2.0f)).write(path);
  const File file = File::open(path);
  GgufWriter().tensor("a", {1}, {1}).write(folder / "new.gguf");
  fs::rename(folder / "new.gguf", path);
  file.check_sizes();  // the map keeps the old file
  EXPECT_EQ(file.find("a")->view.shape.cols(), 4096);

  const File again = File::open(path);
  fs::resize_file(path, 3);
  try {
    again.check_sizes();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::io);
    EXPECT_THAT(error.what(), HasSubstr("to 3 bytes while in use"));
  }
}

}  // namespace
}  // namespace assay::gguf
