// See prompt_folder.h.
#include "pages/prompt_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "base/system_reason.h"
#include "pages/page_tables.h"

namespace assay::pages {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPendingBytesMax = uint64_t{256} << 20;
constexpr std::string_view kEnding = ".prefix";

int64_t whole_pages(int64_t n_tokens) noexcept { return n_tokens / kPagePositions; }

std::string hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest[0], digest[1]); }

// Where the images begin in a file whose head has so many bytes; and where the last one ends.
std::vector<uint64_t> image_begins(const PromptHead& head, uint64_t head_bytes) {
  std::vector<uint64_t> begins = {head_bytes};
  for (size_t i = 0; i < head.n_pages(); ++i) begins.push_back(begins.back() + head.image_bytes(i));
  return begins;
}

Digest salt_digest(std::string_view salt) { return digest_of(std::as_bytes(std::span(salt))); }

}  // namespace

void PromptFolder::make(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder, error);
    if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  }
  if (error || !fs::is_directory(folder, error)) {
    throw Error(Errc::io, fmt::format("{}: needs a folder for saved prompts (--prompt-cache-dir): {}", folder.string(),
                                      error ? error.message() : "it is no folder"));
  }
}

PromptFolder::PromptFolder(fs::path folder, PromptOwner owner, uint64_t bytes_max,
                           std::function<void(std::string_view)> notice)
    : folder_(std::move(folder)), owner_(std::move(owner)), bytes_max_(bytes_max), notice_(std::move(notice)) {
  make(folder_);
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code of_entry;  // what cannot be looked at is not ours, and no reason not to start
    if (path.extension() == ".partial" && path.stem().extension() == kEnding) {
      fs::remove(path, of_entry);  // a program that was killed while it wrote
    } else if (path.extension() == kEnding && at->is_regular_file(of_entry)) {
      const fs::file_time_type time = fs::last_write_time(path, of_entry);
      if (!of_entry) found.emplace_back(time, path);
    }
  }
  if (error)
    throw Error(Errc::io,
                fmt::format("{}: the folder of saved prompts cannot be read: {}", folder_.string(), error.message()));
  std::sort(found.begin(), found.end());
  for (const auto& [time, path] : found) add_file(path, ++clock_);
  make_room(0);
  remove_files();
  writer_ = std::thread([this] { write_all(); });
  try {
    reader_ = std::thread([this] { read_all(); });
  } catch (...) {
    end();
    throw;
  }
}

PromptFolder::~PromptFolder() { end(); }

void PromptFolder::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  writer_.join();
}

std::string PromptFolder::key_of(std::string_view salt) const { return hex(salt_digest(salt)); }

std::optional<PromptHead> PromptFolder::read_head(const fs::path& path, uint64_t file_bytes) {
  try {
    const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) throw Error(Errc::io, base::system_reason(errno));
    std::vector<std::byte> bytes(static_cast<size_t>(std::min<uint64_t>(kPromptFixedBytes, file_bytes)));
    if (!base::read_whole(file, 0, bytes)) throw Error(Errc::io, "it cannot be read");
    bytes.resize(static_cast<size_t>(head_size(bytes, file_bytes)));
    if (!base::read_whole(file, 0, bytes)) throw Error(Errc::io, "it cannot be read");
    return parse_head(bytes, file_bytes);
  } catch (const Error& error) {
    if (notice_) notice_(fmt::format("{} is left aside: {}", path.string(), error.what()));
    return std::nullopt;
  }
}

// Takes a file into the index. Those of other models and settings are not ours to look at, but count.
void PromptFolder::add_file(const fs::path& path, int64_t last_used) {
  std::error_code error;
  const uint64_t file_bytes = fs::file_size(path, error);
  if (error) return;
  const std::optional<PromptHead> head = read_head(path, file_bytes);
  if (!head) return;  // it stays where it is: it may be somebody else's
  const int file = ++last_file_;
  files_[file] = {path, file_bytes, head->checksums, image_begins(*head, head_bytes(*head).size()), last_used};
  bytes_ += file_bytes;
  if (head->owner != owner_) return;
  const PrefixTree::Added added = tree_.add(hex(head->salt), head->tokens, file);
  if (added.replaced) forget(*added.replaced, true);
  if (added.is_covered) forget(file, true);
}

void PromptFolder::forget(int file, bool removes) {
  const auto found = files_.find(file);
  if (found == files_.end()) return;
  if (removes) removed_.push_back(found->second.path);  // what can fail comes first
  tree_.remove(file);
  bytes_ -= found->second.bytes;
  files_.erase(found);
  if (removes) changed_.notify_all();
}

void PromptFolder::remove_files() {
  std::error_code error;
  for (const fs::path& path : removed_) fs::remove(path, error);
  removed_.clear();
}

// Until so many bytes more may be written.
void PromptFolder::make_room(uint64_t bytes) {
  while (!files_.empty() && bytes_ + bytes > bytes_max_) {
    const auto oldest = std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
      return a.second.last_used < b.second.last_used;
    });
    forget(oldest->first, true);
  }
}

int64_t PromptFolder::find(std::string_view salt, std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  return whole_pages(tree_.find(key_of(salt), tokens).n) * kPagePositions;
}

void PromptFolder::keep(std::string_view salt, std::span<const TokenId> tokens, const PageImages& images) {
  const int64_t n_pages = std::min<int64_t>(whole_pages(static_cast<int64_t>(tokens.size())), kPromptPagesMax);
  if (n_pages == 0) return;
  tokens = tokens.first(static_cast<size_t>(n_pages * kPagePositions));
  const std::lock_guard lock(mutex_);
  const std::string key = key_of(salt);
  if (tree_.find(key, tokens).n == static_cast<int64_t>(tokens.size())) return;
  PromptHead head{owner_,
                  salt_digest(salt),
                  {tokens.begin(), tokens.end()},
                  std::vector<uint64_t>(static_cast<size_t>(n_pages)),
                  {}};
  for (int64_t i = 0; i < n_pages; ++i) head.has_window.push_back(images.has_window(i) ? 1 : 0);
  const std::vector<uint64_t> begins = image_begins(head, head_bytes(head).size());
  const uint64_t size = begins.back();
  if (size > bytes_max_ || size > kPendingBytesMax - std::min(pending_bytes_, kPendingBytesMax)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const Digest name = digest_of(head_bytes(head));
  const fs::path path = folder_ / fmt::format("{}-{:x}{}", hex(name), now, kEnding);
  Pending pending{0,
                  path,
                  head,
                  begins,
                  base::AlignedBuffer(size, "a prompt that is saved"),
                  std::make_unique<base::PendingCopies>()};
  for (size_t i = 0; i < head.n_pages(); ++i) {
    if (!images.read(static_cast<int64_t>(i), pending.image(i), *pending.copies)) return;
  }
  make_room(size);
  const int file = pending.file = ++last_file_;
  pending_.push_back(std::move(pending));
  PrefixTree::Added added;
  try {
    files_[file] = {path, size, head.checksums, begins, ++clock_};
    added = tree_.add(key, tokens, file);
  } catch (...) {
    files_.erase(file);
    pending_.pop_back();
    throw;
  }
  bytes_ += size;
  pending_bytes_ += size;
  if (added.replaced) forget(*added.replaced, true);
  changed_.notify_all();
}

// Once the images are there. False: they could not be read.
bool PromptFolder::make_whole(Pending& pending) {
  if (!pending.copies->wait()) {
    if (notice_) notice_(fmt::format("{} is not written: its pages cannot be read", pending.path.string()));
    const std::lock_guard lock(mutex_);
    forget(pending.file, false);
    return false;
  }
  for (size_t i = 0; i < pending.head.n_pages(); ++i) pending.head.checksums[i] = checksum_of(pending.image(i));
  const std::vector<std::byte> begin = head_bytes(pending.head);
  std::copy(begin.begin(), begin.end(), pending.bytes.data());
  const std::lock_guard lock(mutex_);
  const auto entry = files_.find(pending.file);
  if (entry != files_.end()) entry->second.checksums = pending.head.checksums;
  return true;
}

void PromptFolder::write(const Pending& pending) {
  fs::path partial = pending.path;
  partial += ".partial";
  const auto fail = [&](std::string_view what) {
    const std::string why = base::system_reason(errno);
    ::unlink(partial.c_str());
    if (notice_) notice_(fmt::format("{} is not written: {}: {}", pending.path.string(), what, why));
    const std::lock_guard lock(mutex_);
    forget(pending.file, false);
  };
  {
    const base::Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.is_open()) return fail("it cannot be made");
    if (!base::write_whole(file, pending.bytes.bytes())) return fail("its bytes");
    if (::fsync(file.number()) != 0) return fail("its bytes do not reach the disk");
  }
  if (::rename(partial.c_str(), pending.path.c_str()) != 0) return fail("its name");
  const base::Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) ::fsync(folder.number());
}

void PromptFolder::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !pending_.empty() || !removed_.empty(); });
    if (pending_.empty() && removed_.empty()) return;
    is_writing_ = true;
    std::vector<fs::path> removed = std::exchange(removed_, {});
    Pending* const first = pending_.empty() ? nullptr : &pending_.front();  // only this thread takes it out
    lock.unlock();
    std::error_code error;
    for (const fs::path& path : removed) fs::remove(path, error);
    if (first != nullptr && make_whole(*first)) write(*first);
    lock.lock();
    if (first != nullptr) {
      changed_.wait(lock, [first] { return first->n_readers == 0; });
      if (!files_.contains(first->file)) removed_.push_back(first->path);  // replaced or dropped while it was written
      pending_bytes_ -= first->bytes.size();
      pending_.pop_front();
    }
    is_writing_ = false;
    changed_.notify_all();
  }
}

void PromptFolder::wait_written() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty() && removed_.empty() && !is_writing_; });
}

int64_t PromptFolder::n_files() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(files_.size());
}

uint64_t PromptFolder::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace assay::pages
