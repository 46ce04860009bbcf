// Saved prompts: found after a restart, never by another owner or salt, and a cold start wherever a file is damaged.
#include "pages/prompt_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <future>

#include "assay/error.h"
#include "pages/page_tables.h"
#include "support/saved_pages.h"
#include "support/temp_folder.h"

namespace assay::pages {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<TokenId>;

constexpr uint64_t kBytes = 4096, kWindowBytes = 1000;

class PromptFolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<PromptFolder> open(uint64_t bytes_max = 1 << 20, const std::string& settings = "exact") {
    return std::make_unique<PromptFolder>(temp_ / "saved", PromptOwner{{1, 2}, settings, kBytes, kWindowBytes},
                                          bytes_max, [this](std::string_view line) {
                                            const std::lock_guard lock(mutex_);
                                            notices_.emplace_back(line);
                                          });
  }
  static Tokens tokens(int n, int from) {
    Tokens list;
    for (int i = 0; i < n; ++i) list.push_back(from + i);
    return list;
  }
  static std::byte fill_of(TokenId first, int64_t i_page) { return static_cast<std::byte>(first + 3 * i_page); }
  // Page 0 has the layers with a window, the others up to i_window have not.
  static void keep(PromptFolder& folder, std::string_view salt, const Tokens& of, int64_t i_window = 1) {
    const auto has_window = [=](int64_t i) { return i == 0 || i >= i_window; };
    folder.keep(salt, of, {has_window, [&](int64_t i, std::span<std::byte> image, base::PendingCopies&) {
                             EXPECT_EQ(image.size(), has_window(i) ? kBytes : kBytes - kWindowBytes);
                             std::fill(image.begin(), image.end(), fill_of(of.front(), i));
                             return true;
                           }});
  }
  // Pages that come back, each checked.
  static int64_t read(PromptFolder& folder, std::string_view salt, const Tokens& of, int64_t i_first = 0) {
    int64_t i = i_first;
    test::read_saved(folder, salt, of, i_first, [&](std::span<const std::byte> image) {
      for (const std::byte b : image) EXPECT_EQ(b, fill_of(of.front(), i));
      ++i;
    });
    return i - i_first;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(temp_ / "saved")) list.push_back(entry.path());
    return list;
  }

  test::TempFolder temp_;
  std::mutex mutex_;
  std::vector<std::string> notices_;
};

TEST_F(PromptFolderTest, FoundAfterARestartByOwnerAndSaltAlone) {
  {
    const auto folder = open();
    keep(*folder, "a", tokens(200, 5));
    EXPECT_EQ(folder->find("a", tokens(300, 5)), 192);
    EXPECT_EQ(read(*folder, "a", tokens(200, 5)), 3);  // also while it waits to be written
  }
  const auto folder = open();
  EXPECT_EQ(folder->find("a", tokens(300, 5)), 192);
  EXPECT_EQ(folder->find("a", tokens(130, 5)), 128);
  EXPECT_EQ(read(*folder, "a", tokens(130, 5)), 2);
  EXPECT_EQ(read(*folder, "a", tokens(200, 5), 2), 1);
  EXPECT_EQ(folder->find("b", tokens(200, 5)), 0);
  EXPECT_EQ(open(1 << 20, "f32")->find("a", tokens(200, 5)), 0);
  ASSERT_EQ(files().size(), 1u);
  struct stat facts {};
  ASSERT_EQ(::stat(files().front().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(PromptFolderTest, PagesMayBeWithoutTheLayersThatHaveAWindow) {
  const auto sizes = [](PromptFolder& folder) {
    std::vector<uint64_t> list;
    test::read_saved(folder, "", tokens(300, 5), 0, [&](std::span<const std::byte> image) {
      for (const std::byte b : image) EXPECT_EQ(b, fill_of(5, static_cast<int64_t>(list.size())));
      list.push_back(image.size());
    });
    return list;
  };
  const std::vector<uint64_t> expected = {kBytes, kBytes - kWindowBytes, kBytes - kWindowBytes, kBytes};
  {
    const auto folder = open();
    keep(*folder, "", tokens(270, 5), 3);
    EXPECT_EQ(sizes(*folder), expected);  // as it waits
  }
  EXPECT_EQ(sizes(*open()), expected);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_LT(fs::file_size(files().front()), 4 * kBytes);
}

TEST_F(PromptFolderTest, ALongerOneReplacesWhatItHolds) {
  const auto folder = open();
  keep(*folder, "", tokens(70, 1));
  keep(*folder, "", tokens(64, 1));  // held
  EXPECT_EQ(folder->n_files(), 1);
  keep(*folder, "", tokens(140, 1));
  folder->wait_written();
  EXPECT_EQ(folder->n_files(), 1);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(read(*folder, "", tokens(140, 1)), 2);
}

TEST_F(PromptFolderTest, TheLeastRecentlyUsedMakesRoom) {
  const auto folder = open(4 * (kBytes + 1000));
  for (int i = 0; i < 4; ++i) keep(*folder, "", tokens(64, 1000 * (i + 1)));
  folder->wait_written();
  EXPECT_EQ(folder->n_files(), 4);
  EXPECT_EQ(read(*folder, "", tokens(64, 1000)), 1);
  keep(*folder, "", tokens(64, 9000));
  folder->wait_written();
  EXPECT_EQ(folder->find("", tokens(64, 1000)), 64);
  EXPECT_EQ(folder->find("", tokens(64, 2000)), 0);
  EXPECT_EQ(files().size(), 4u);
  EXPECT_LE(folder->bytes(), 4 * (kBytes + 1000));
}

// Every byte of a file: what is read back is what was written, or nothing from there on, and a line says so.
TEST_F(PromptFolderTest, ADamagedFileIsAColdStart) {
  keep(*open(), "", tokens(128, 3));
  const fs::path path = files().front();
  const auto size = static_cast<int64_t>(fs::file_size(path));
  std::string whole(static_cast<size_t>(size), '\0');
  std::ifstream(path, std::ios::binary).read(whole.data(), size);
  for (int64_t at = 0; at < size; at += at < 800 ? 37 : 501) {
    std::string bytes = whole;
    bytes[static_cast<size_t>(at)] = static_cast<char>(bytes[static_cast<size_t>(at)] ^ 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    notices_.clear();
    const auto folder = open();
    EXPECT_LT(read(*folder, "", tokens(128, 3)), 2) << "byte " << at;
    EXPECT_EQ(notices_.size(), 1u) << "byte " << at;
    EXPECT_EQ(read(*folder, "", tokens(128, 3)), 0);
  }
  for (const int64_t n : {int64_t{0}, int64_t{10}, int64_t{63}, int64_t{700}, size - 1}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, static_cast<size_t>(n));
    notices_.clear();
    EXPECT_EQ(open()->find("", tokens(128, 3)), 0) << n << " bytes";
    EXPECT_EQ(notices_.size(), 1u);
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
  const auto folder = open();
  fs::remove(path);  // by another program, say
  EXPECT_EQ(read(*folder, "", tokens(128, 3)), 0);
}

// The thread that reads hangs: whoever looks, asks, keeps and gives up goes on.
TEST_F(PromptFolderTest, ADiskThatHangsHoldsUpNobody) {
  keep(*open(), "", tokens(128, 3));
  const auto folder = open();
  std::promise<void> turns;
  std::atomic<int> n_before = 0;
  folder->on_read({}, [&, turned = turns.get_future().share()] {
    ++n_before;
    turned.wait();
  });
  const int first = folder->begin_read("", tokens(128, 3), 0), second = folder->begin_read("", tokens(128, 3), 0);
  while (n_before == 0) std::this_thread::yield();
  EXPECT_FALSE(folder->take_page(first));
  EXPECT_FALSE(folder->is_over(first));
  EXPECT_EQ(folder->find("", tokens(128, 3)), 128);
  keep(*folder, "", tokens(64, 700));
  folder->wait_written();
  EXPECT_EQ(folder->n_files(), 2);
  folder->end_read(first);  // while its page is read
  turns.set_value();
  int64_t n = 0;
  test::take_all_pages(*folder, second, [&](std::span<const std::byte> image) {
    EXPECT_EQ(image.front(), fill_of(3, n));
    ++n;
  });
  EXPECT_EQ(n, 2);
  EXPECT_EQ(n_before, 3);
}

// Whoever asked for a damaged file's pages has those before the damage; one line says so.
TEST_F(PromptFolderTest, ManyReadingsOfADamagedFileAreOneLine) {
  keep(*open(), "", tokens(256, 3));
  std::fstream file(files().front(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  {
    const auto folder = open();
    std::promise<void> turns;
    folder->on_read({}, [turned = turns.get_future().share()] { turned.wait(); });
    std::vector<int> readings;
    for (int i = 0; i < 3; ++i) readings.push_back(folder->begin_read("", tokens(256, 3), 0));
    turns.set_value();
    int64_t n = 0;
    for (const int reading : readings) test::take_all_pages(*folder, reading, [&](auto) { ++n; });
    EXPECT_EQ(n, 3);  // the first one's: the file is gone when the others' turn comes
    EXPECT_EQ(folder->n_files(), 0);
  }
  EXPECT_EQ(notices_.size(), 1u);
  EXPECT_TRUE(files().empty());
}

// A file that makes room for another one while it is read: what came stays, nothing comes after it, and nobody is told.
TEST_F(PromptFolderTest, AFileThatIsDroppedEndsItsReadings) {
  const auto folder = open(4 * (kBytes + 1000));
  keep(*folder, "", tokens(192, 3));
  folder->wait_written();
  std::promise<void> turns;
  std::atomic<int> n_before = 0;
  folder->on_read({}, [&, turned = turns.get_future().share()] {
    if (++n_before == 2) turned.wait();
  });
  const int reading = folder->begin_read("", tokens(192, 3), 0);
  while (n_before < 2) std::this_thread::yield();
  keep(*folder, "", tokens(192, 1000));
  folder->wait_written();
  turns.set_value();
  int64_t n = 0;
  test::take_all_pages(*folder, reading, [&](auto) { ++n; });
  EXPECT_GE(n, 1);
  EXPECT_LE(n, 2);  // the second page was found already
  EXPECT_EQ(folder->find("", tokens(192, 3)), 0);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(PromptFolderTest, PagesAreReadAheadUpToALimit) {
  constexpr uint64_t kLarge = 12 << 20;
  PromptFolder folder(temp_ / "large", PromptOwner{{1, 2}, "exact", kLarge, 0}, 1 << 30, {});
  std::atomic<int> n_before = 0;
  folder.on_read({}, [&] { ++n_before; });
  folder.keep("", tokens(256, 3),
              {[](int64_t) { return true; }, [](int64_t, std::span<std::byte>, base::PendingCopies&) { return true; }});
  const int one = folder.begin_read("", tokens(256, 3), 0), other = folder.begin_read("", tokens(256, 3), 2);
  while (n_before < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(n_before, 2);  // 24 MiB; a third one would be above 32
  int64_t n = 0;
  test::take_all_pages(folder, one, [&](std::span<const std::byte> image) {
    EXPECT_EQ(image.size(), kLarge);
    ++n;
  });
  test::take_all_pages(folder, other, [&](auto) { ++n; });
  EXPECT_EQ(n, 6);
}

TEST_F(PromptFolderTest, ANameThatLeadsNowhereIsLeftAside) {
  keep(*open(), "a", tokens(200, 5));
  for (const char* name : {"0.prefix", "f.prefix", "zzz.prefix"}) {
    fs::create_symlink(temp_ / "nowhere", temp_ / "saved" / name);
    EXPECT_EQ(open()->find("a", tokens(200, 5)), 192) << name;
  }
}

TEST_F(PromptFolderTest, WhatAKilledProgramLeftIsSweptAway) {
  fs::create_directories(temp_ / "saved");
  std::ofstream(temp_ / "saved" / "x.prefix.partial") << "half";
  std::ofstream(temp_ / "saved" / "notes.txt") << "mine";
  const auto folder = open();
  EXPECT_EQ(files().size(), 1u);
  EXPECT_THROW(PromptFolder(temp_ / "saved" / "notes.txt", {}, 1, {}), Error);
}

}  // namespace
}  // namespace assay::pages
