#include "store/hash_behind.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/error.h"
#include "support/temp_folder.h"

namespace assay::store {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string digest_of(std::string_view text) {
  Sha256 digest;
  digest.add(bytes_of(text));
  return digest.hex();
}

class HashBehindTest : public ::testing::Test {
 protected:
  HashBehindTest() : file_(::open((folder_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~HashBehindTest() override {
    hash_.stop();
    ::close(file_);
  }
  void write(std::string_view text, bool hands_on = false) {
    ASSERT_EQ(::pwrite(file_, text.data(), text.size(), static_cast<off_t>(all_.size())),
              static_cast<ssize_t>(text.size()));
    all_ += text;
    const auto n_bytes = static_cast<int64_t>(all_.size());
    if (hands_on) {
      const auto bytes = bytes_of(text);
      memory_.assign(bytes.begin(), bytes.end());
      hash_.grow(file_, n_bytes, memory_);
    } else {
      hash_.grow(file_, n_bytes);
    }
  }

  test::TempFolder folder_;
  int file_;
  std::string all_;
  std::vector<std::byte> memory_;
  HashBehind hash_;
};

TEST_F(HashBehindTest, IsThatOfAllThatWasWritten) {
  for (size_t i = 0; i < 400; ++i) write(std::string(1 + i * 997 % 200'000, static_cast<char>('a' + i % 26)));
  EXPECT_EQ(hash_.digest(), digest_of(all_));
}

// What the writer hands on and what is read back, in any order and more than is kept at a time.
TEST_F(HashBehindTest, TakesWhatIsHandedOnAndReadsTheRest) {
  for (size_t i = 0; i < 400; ++i)
    write(std::string(1 + i * 9973 % 700'000, static_cast<char>('a' + i % 26)), i % 7 < 4 || i > 300);
  EXPECT_EQ(hash_.digest(), digest_of(all_));
}

// Not read back: another's byte in the file changes nothing.
TEST_F(HashBehindTest, WhatIsHandedOnIsWhatIsHashed) {
  const auto good = bytes_of("good");
  memory_.assign(good.begin(), good.end());
  hash_.grow(file_, 4, memory_);
  EXPECT_TRUE(memory_.empty());
  EXPECT_EQ(hash_.digest(), digest_of("good"));
}

// A hundred megabytes come faster than they are hashed, and pass through the memory of a few.
TEST_F(HashBehindTest, WaitsWhereMuchIsNotHashedYet) {
  const std::string part(size_t{1} << 20, 'x');
  std::set<const std::byte*> places;
  for (int i = 0; i < 100; ++i) {
    write(part, true);
    memory_.resize(1);
    places.insert(memory_.data());
  }
  EXPECT_LT(places.size(), 12U);
  EXPECT_EQ(hash_.digest(), digest_of(all_));
}

// What a file had before is read first; nobody waits for that.
TEST_F(HashBehindTest, WhatComesMeanwhileIsReadTooWhereOlderIsReadBack) {
  write(std::string(60'000'000, 'a'));
  for (int i = 0; i < 40; ++i) write(std::string(size_t{1} << 20, static_cast<char>('b' + i % 20)), true);
  EXPECT_EQ(hash_.digest(), digest_of(all_));
}

TEST_F(HashBehindTest, OfNothingIsThatOfAnEmptyText) { EXPECT_EQ(hash_.digest(), digest_of("")); }

TEST_F(HashBehindTest, BeginsAnewWithAnEmptyFile) {
  write(std::string(3'000'000, 'x'));
  write(std::string(200'000, 'y'), true);
  hash_.restart();
  all_.clear();
  ASSERT_EQ(::ftruncate(file_, 0), 0);
  EXPECT_EQ(hash_.digest(), digest_of(""));
  write("again");
  EXPECT_EQ(hash_.digest(), digest_of("again"));
}

TEST_F(HashBehindTest, AFailureIsTheCallersUntilItBeginsAnew) {
  write("some");
  hash_.grow(file_, 1'000);  // which the file does not have
  EXPECT_THROW(hash_.digest(), Error);
  EXPECT_THROW(hash_.digest(), Error);
  hash_.restart();
  all_.clear();
  write("good");
  EXPECT_EQ(hash_.digest(), digest_of("good"));
}

TEST_F(HashBehindTest, EndsWithoutWhatStillWaits) { write(std::string(20'000'000, 'x')); }

}  // namespace
}  // namespace assay::store
