// A folder where beginnings of prompts outlive the program (prompt_file.h): looked up by tokens, read page by page and
// written beside the work, by a thread each. Whoever looks, asks and takes never waits for the disk. What is damaged,
// foreign or half written is a beginning that is not there. One program's view: another one may use the same folder,
// and may take a file away.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/descriptor.h"
#include "base/pending_copies.h"
#include "pages/prefix_tree.h"
#include "pages/prompt_file.h"

namespace assay::pages {

// The pages of a prompt where they are: page i, without what it has not of layers with a window.
struct PageImages {
  std::function<bool(int64_t i_page)> has_window;
  // May copy beside what runs: the image is there once `copies` are over.
  std::function<bool(int64_t i_page, std::span<std::byte> image, base::PendingCopies& copies)> read;
};

class PromptFolder {
 public:
  // The folder, where it is missing: 0700. Error(io) where it cannot be made.
  static void make(const std::filesystem::path& folder);
  // Makes the folder and reads the heads of the owner's files. Error(io) where that cannot be done; notice is told of
  // files that cannot be used, a line each, and may be called by either thread.
  PromptFolder(std::filesystem::path folder, PromptOwner owner, uint64_t bytes_max,
               std::function<void(std::string_view)> notice);
  ~PromptFolder();  // once all is written
  PromptFolder(const PromptFolder&) = delete;
  PromptFolder& operator=(const PromptFolder&) = delete;

  // How many tokens of these, in whole pages, a file holds.
  int64_t find(std::string_view salt, std::span<const TokenId> tokens);
  // Begins to read the pages from i_first on of the file that find() finds for these tokens. The reading's number, for
  // what follows; above 0. Pages are read ahead up to a limit of all readings together, so those that came have to be
  // taken.
  int begin_read(std::string_view salt, std::span<const TokenId> tokens, int64_t i_first);
  // The image of the next page, which may be without the owner's window_bytes; none: it is not there yet, or none comes
  // any more.
  std::optional<base::AlignedBuffer> take_page(int reading);
  bool is_over(int reading) const;  // all pages that came were taken, and none comes any more
  void end_read(int reading);       // at any time
  // Called by the thread that reads, after every page and at the end of a reading; and, for tests that need a slow
  // disk, before every page.
  void on_read(std::function<void()> after, std::function<void()> before = {});
  // Keeps these tokens' pages, whole ones, which are asked for before this returns. Nothing where a file holds them, or
  // where too much waits to be written.
  void keep(std::string_view salt, std::span<const TokenId> tokens, const PageImages& images);
  void wait_written();  // and until what was dropped is removed
  int64_t n_files() const;
  uint64_t bytes() const;

 private:
  struct Entry {
    std::filesystem::path path;
    uint64_t bytes = 0;
    std::vector<uint64_t> checksums, begins;  // of each page's image, and where it begins; and where the last one ends
    int64_t last_used = 0;
  };
  struct Pending {
    int file = 0;
    std::filesystem::path path;
    PromptHead head;  // without the checksums
    std::vector<uint64_t> begins;
    base::AlignedBuffer bytes;
    std::unique_ptr<base::PendingCopies> copies;  // whose end is waited for before the bytes go
    int n_readers = 0;                            // so is that of these
    std::span<std::byte> image(size_t i) { return bytes.bytes().subspan(begins[i], begins[i + 1] - begins[i]); }
  };
  struct Reading {
    int file = 0;
    int64_t i_next = 0, n_pages = 0;        // the page to be read next; of the file
    std::deque<base::AlignedBuffer> pages;  // that were read and not taken
  };
  // A page to be read, found under the lock and read without it.
  struct PageTask {
    int file = 0;
    int64_t i_page = 0;
    bool is_last = false;
    std::filesystem::path path;
    uint64_t begin = 0, bytes = 0, checksum = 0;
    Pending* waits = nullptr;  // where it is, before it is written
  };
  void add_file(const std::filesystem::path& path, int64_t last_used);
  std::optional<PromptHead> read_head(const std::filesystem::path& path, uint64_t file_bytes);
  void forget(int file, bool removes);
  void make_room(uint64_t bytes);
  void remove_files();
  int next_reading() const;
  std::optional<PageTask> next_page(int reading);
  std::string read_page(const PageTask& task, std::span<std::byte> image);
  std::optional<base::AlignedBuffer> make_page(const PageTask& task);
  void read_all();
  void write_all();
  bool make_whole(Pending& pending);
  void write(const Pending& pending);
  void end();
  std::string key_of(std::string_view salt) const;

  const std::filesystem::path folder_;
  const PromptOwner owner_;
  const uint64_t bytes_max_;
  const std::function<void(std::string_view)> notice_;
  mutable std::mutex mutex_;  // over all below
  std::condition_variable changed_;
  PrefixTree tree_;
  std::map<int, Entry> files_;
  int last_file_ = 0;
  int64_t clock_ = 0;
  uint64_t bytes_ = 0, pending_bytes_ = 0;
  std::deque<Pending> pending_;
  std::vector<std::filesystem::path> removed_;  // of files to be removed: this takes its time, too
  std::map<int, Reading> readings_;             // the first one goes first
  int last_reading_ = 0;
  uint64_t read_bytes_ = 0;  // of pages that were read and not taken
  std::function<void()> after_read_, before_read_;
  bool is_writing_ = false, ends_ = false;
  // The thread's that reads.
  base::Descriptor open_;
  int open_file_ = 0;
  std::thread reader_, writer_;
};

}  // namespace assay::pages
