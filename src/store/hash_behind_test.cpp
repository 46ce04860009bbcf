#include "store/hash_behind.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <string_view>

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
  ~HashBehindTest() override { ::close(file_); }
  void write(std::string_view text, bool hands_on = false) {
    ASSERT_EQ(::pwrite(file_, text.data(), text.size(), static_cast<off_t>(all_.size())),
              static_cast<ssize_t>(text.size()));
    all_ += text;
    hash_.grow(file_, static_cast<int64_t>(all_.size()), hands_on ? bytes_of(text) : std::span<const std::byte>());
  }

  test::TempFolder folder_;
  int file_;
  std::string all_;
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
  hash_.grow(file_, 4, bytes_of("good"));
  EXPECT_EQ(hash_.digest(), digest_of("good"));
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
