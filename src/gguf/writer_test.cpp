#include "gguf/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "assay/error.h"
#include "support/failing_calls.h"
#include "support/gguf_writer.h"
#include "support/temp_folder.h"

namespace assay::gguf {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kTensors = 7;

test::Bytes content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

size_t n_files(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// Seven tensors of 400 kB and a little: more than one buffer, no multiple of the alignment.
class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    theirs_.set("general.architecture", "llama").set("general.name", "x");
    head_.set("general.architecture", Value::of("llama")).set("general.name", Value::of("x"));
    for (size_t i = 0; i < kTensors; ++i) {
      const int64_t n = 100'001 + static_cast<int64_t>(i);
      std::vector<float> values(static_cast<size_t>(n));
      for (size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(j * (i + 1) % 1013);
      const std::string name = fmt::format("t{}", i);
      theirs_.tensor(name, {n}, values);
      tensor::Shape shape;
      shape.dims[0] = n;
      head_.declare(name, tensor::DType::F32, shape);
      const auto bytes = std::as_bytes(std::span(values));
      data_.emplace_back(bytes.begin(), bytes.end());
    }
  }
  // Writes tensors from the next one up to `end`, in pieces.
  void write(Writer& writer, size_t end = kTensors) const {
    while (writer.next() < end) {
      const std::span<const std::byte> all = data_[writer.next()];
      for (size_t at = 0; at < all.size(); at += 70'001)
        writer.write(all.subspan(at, std::min<size_t>(70'001, all.size() - at)));
    }
  }
  void write_file(std::vector<Head> heads, WriterOptions options = {}) const {
    Writer writer(out(), std::move(heads), std::move(options));
    write(writer);
    writer.finish();
  }
  // Leaves the files as a process that is killed after so many tensors and half of the next one does.
  void leave_killed(std::vector<Head> heads, WriterOptions options, size_t n) const {
    const pid_t child = ::fork();
    if (child == 0) {
      Writer writer(out(), std::move(heads), std::move(options));
      write(writer, n);
      if (n < kTensors) writer.write(std::span(data_[n]).first(200'000));
      ::_exit(0);  // no destructor runs
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  fs::path out() const { return folder_ / "m.gguf"; }

  test::TempFolder folder_;
  test::GgufWriter theirs_;
  Head head_;
  std::vector<test::Bytes> data_;
};

TEST_F(WriterTest, HasTheBytesOfTheIndependentWriter) {
  Writer writer(out(), head_);
  EXPECT_EQ(writer.n_tensors(), kTensors);
  write(writer);
  EXPECT_EQ(writer.next(), kTensors);
  EXPECT_EQ(writer.bytes_written(), writer.bytes_total());
  EXPECT_FALSE(fs::exists(out()));
  int checks = 0;
  writer.finish([&](const std::vector<fs::path>& partials) {
    ++checks;
    ASSERT_EQ(partials.size(), 1u);
    EXPECT_TRUE(content(partials[0]) == theirs_.bytes());
  });
  EXPECT_EQ(checks, 1);
  EXPECT_TRUE(content(out()) == theirs_.bytes());
  EXPECT_EQ(n_files(folder_.path()), 1u);
}

TEST_F(WriterTest, AFileWithoutTensors) {
  Head head;
  head.set("general.architecture", Value::of("llama"));
  Writer writer(out(), head);
  writer.finish();
  EXPECT_TRUE(content(out()) == test::GgufWriter().set("general.architecture", "llama").bytes());
}

TEST_F(WriterTest, SplitFilesAreReadTogether) {
  const std::vector<Head> heads = split(head_, {.n_tensors_max = 3});
  write_file(heads);
  EXPECT_EQ(n_files(folder_.path()), 3u);
  const File file = File::open(folder_ / "m-00001-of-00003.gguf");
  ASSERT_EQ(file.tensors().size(), kTensors);
  for (size_t i = 0; i < kTensors; ++i) EXPECT_TRUE(std::ranges::equal(file.tensors()[i].view.data, data_[i])) << i;
  EXPECT_EQ(file.tensors()[6].shard, 2);
}

TEST_F(WriterTest, NothingIsThereWithoutFinish) {
  std::ofstream(out()) << "old";
  {
    Writer writer(out(), head_, {.work = "digest"});
    write(writer, 4);
  }
  EXPECT_EQ(n_files(folder_.path()), 1u);
  EXPECT_EQ(fs::file_size(out()), 3u);
  {
    Writer writer(out(), split(head_, {.n_tensors_max = 2}));
    write(writer);
    EXPECT_THROW(writer.finish([](const auto&) { throw Error(Errc::bad_file, "found wrong"); }), Error);
  }
  EXPECT_EQ(n_files(folder_.path()), 1u);
}

TEST_F(WriterTest, HoldsItsCallerToWhatWasDeclared) {
  Writer writer(out(), head_);
  write(writer, 1);
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.write(std::span(data_[6])), Error);  // longer than the tensor that comes next
  write(writer);
  EXPECT_THROW(writer.write(std::span(data_[0])), Error);
}

TEST_F(WriterTest, EachCallThatFailsLeavesTheOldFile) {
  for (const bool is_split : {false, true}) {
    std::vector<Head> heads(1, head_);
    if (is_split) heads = split(head_, {.n_tensors_max = 4});
    test::fail_call(-1);
    write_file(heads, {.work = "digest"});
    const int n = test::n_calls();
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
    ASSERT_GT(n, 10);
    int n_failed = 0;
    for (int i = 0; i < n; ++i) {
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
      std::ofstream(out()) << "old";
      test::fail_call(i);
      try {
        write_file(heads, {.work = "digest"});
      } catch (const Error& e) {
        EXPECT_EQ(e.code, Errc::io);
        EXPECT_THAT(e.what(), HasSubstr("No space left on device"));
        ++n_failed;
      }
      test::fail_call(-1);
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) {
        EXPECT_NE(entry.path().extension(), ".partial") << i;
        EXPECT_NE(entry.path().extension(), ".work") << i;
        EXPECT_EQ(entry.path(), out()) << i;
      }
      if (!is_split && i + 2 < n) {  // the last two: the rename has been done
        EXPECT_EQ(fs::file_size(out()), 3u) << i;
      }
    }
    EXPECT_EQ(n_failed, n) << "every failure must be told";
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
  }
}

TEST_F(WriterTest, GoesOnAfterTheLastWholeTensor) {
  for (const bool is_split : {false, true}) {
    std::vector<Head> heads(1, head_);
    if (is_split) heads = split(head_, {.n_tensors_max = 3});
    for (const size_t n_done : {size_t{0}, size_t{2}, size_t{3}, size_t{6}, kTensors}) {
      leave_killed(heads, {.work = "digest"}, n_done);
      {
        Writer writer(out(), heads, {.work = "digest", .resume = true});
        EXPECT_LE(writer.next(), n_done);
        EXPECT_GE(writer.next() + 3, n_done);  // what the buffer held is lost
        if (n_done >= 4) {
          EXPECT_GT(writer.next(), 0u);
        }
        write(writer);
        writer.finish();
      }
      const File file = File::open(is_split ? folder_ / "m-00001-of-00003.gguf" : out());
      for (size_t i = 0; i < kTensors; ++i)
        EXPECT_TRUE(std::ranges::equal(file.tensors()[i].view.data, data_[i])) << n_done << " " << i;
      EXPECT_EQ(n_files(folder_.path()), heads.size());
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
    }
  }
}

TEST_F(WriterTest, OtherWorkBeginsAnew) {
  Head other = head_;
  other.set("general.name", Value::of("y"));
  leave_killed({other}, {.work = "digest"}, 5);
  EXPECT_EQ(Writer(out(), head_, {.work = "digest", .resume = true}).next(), 0u);  // another head
  leave_killed({head_}, {.work = "digest"}, 5);
  EXPECT_EQ(Writer(out(), head_, {.work = "other", .resume = true}).next(), 0u);
  leave_killed({head_}, {.work = "digest"}, 5);
  EXPECT_EQ(Writer(out(), head_, {.work = "digest"}).next(), 0u);
  leave_killed({head_}, {.work = "digest"}, 5);
  EXPECT_GT(Writer(out(), head_, {.work = "digest", .resume = true}).next(), 0u);
  EXPECT_EQ(n_files(folder_.path()), 0u);
}

}  // namespace
}  // namespace assay::gguf
