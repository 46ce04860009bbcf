// A program that is killed while it saves prompts: what the next one finds in the folder is what was saved, or nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "pages/page_tables.h"
#include "pages/prompt_folder.h"
#include "support/random_numbers.h"
#include "support/rounds.h"
#include "support/saved_pages.h"
#include "support/temp_folder.h"

namespace assay::pages {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kImageBytes = 8192;
constexpr int kPrompts = 24;

// Prompt i of a round; two in three begin as one of the round before, which a longer one replaces.
std::vector<TokenId> prompt(int round, int i) {
  std::vector<TokenId> tokens;
  const int family = i % 3 == 0 ? 1000 * round + i : i;
  for (int t = 0; t < 64 * (1 + (round + i) % 5); ++t) tokens.push_back((family * 131 + t * 7) % 50'000);
  return tokens;
}

std::byte content(const std::vector<TokenId>& tokens, int64_t i_page, size_t at) {
  const auto first = static_cast<size_t>(tokens[static_cast<size_t>(i_page * kPagePositions)]);
  return static_cast<std::byte>((first * 31 + static_cast<size_t>(i_page) * 17 + at * 5 + at / 256) % 251);
}

std::unique_ptr<PromptFolder> open(const fs::path& folder, std::vector<std::string>& notices) {
  return std::make_unique<PromptFolder>(folder, PromptOwner{{3, 4}, "exact", kImageBytes}, 40 * kImageBytes,
                                        [&notices](std::string_view line) { notices.emplace_back(line); });
}

// Whether a round's program rests once all is written. Room is made for a prompt before it is written, so one that goes
// on and on may die, where the disk is slow, with everything old removed and nothing new there yet.
bool rests(int round) { return round % 5 == 4; }

// Saves until it is killed; says so once the first prompt is on its way, and once all are written.
[[noreturn]] void save_all(const fs::path& path, int round, int progress) {
  ::alarm(120);  // should nobody do so
  std::vector<std::string> notices;
  const auto folder = open(path, notices);
  for (int n_saved = 0;; ++n_saved) {
    const int i = n_saved % kPrompts;
    const std::vector<TokenId> tokens = prompt(round, i);
    const auto read = [&](int64_t i_page, std::span<std::byte> image, base::PendingCopies&) {
      for (size_t at = 0; at < image.size(); ++at) image[at] = content(tokens, i_page, at);
      return true;
    };
    folder->keep("", tokens, {[](int64_t) { return true; }, read});
    if (i + 1 == kPrompts) folder->wait_written();
    if ((n_saved == 0 || n_saved + 1 == kPrompts) && ::write(progress, "", 1) != 1) ::_exit(1);
    while (i + 1 == kPrompts && rests(round)) ::pause();
  }
}

// How many pages of the round's prompts are found, each as it was saved.
int64_t check_all(PromptFolder& folder, int round) {
  int64_t n_pages = 0;
  for (int i = 0; i < kPrompts; ++i) {
    const std::vector<TokenId> tokens = prompt(round, i);
    if (folder.find("", tokens) == 0) continue;
    int64_t i_page = 0;
    test::read_saved(folder, "", tokens, 0, [&](std::span<const std::byte> image) {
      bool is_same = image.size() == kImageBytes;
      for (size_t at = 0; is_same && at < image.size(); ++at) is_same = image[at] == content(tokens, i_page, at);
      EXPECT_TRUE(is_same) << "round " << round << ", prompt " << i << ", page " << i_page;
      ++i_page;
    });
    n_pages += i_page;
  }
  return n_pages;
}

TEST(PromptFolder, KilledInTwoHundredRoundsItHoldsWhatWasSaved) {
  const test::TempFolder temp;
  const fs::path folder = temp / "saved";
  test::Random random(9);
  int n_partial = 0;
  const int n_rounds = test::unless_sanitized(200, 10);
  const auto is_enough = [&](int round) {
    return round >= n_rounds && (n_partial > 0 || round >= 10 * n_rounds);
  };  // one at least dies while it writes
  for (int round = 0; !is_enough(round) && !testing::Test::HasFailure(); ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_all(folder, round, ends[1]);
    ::close(ends[1]);
    char byte = 0;
    for (int i = 0; i < (rests(round) ? 2 : 1); ++i) EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(5000)));  // any moment will do
    ::kill(child, SIGKILL);
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    for (const auto& entry : fs::directory_iterator(folder)) n_partial += entry.path().extension() == ".partial";
    std::vector<std::string> notices;
    const auto found = open(folder, notices);
    const int64_t n_pages = check_all(*found, round);
    EXPECT_GE(n_pages, rests(round) ? 1 : 0) << "round " << round;
    if (round > 0) check_all(*found, round - 1);
    EXPECT_TRUE(notices.empty()) << notices.front();
    EXPECT_LE(found->bytes(), 40 * kImageBytes);
    for (const auto& entry : fs::directory_iterator(folder)) EXPECT_EQ(entry.path().extension(), ".prefix");
  }
  RecordProperty("killed_while_writing", n_partial);
  EXPECT_GT(n_partial, 0);
}

}  // namespace
}  // namespace assay::pages
