// Pages on their way from a folder of saved prompts to whoever asked for them: found under the lock, read and checked
// without it, so that nobody who asks waits for the disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "assay/error.h"
#include "base/system_reason.h"
#include "pages/page_tables.h"
#include "pages/prompt_folder.h"

namespace assay::pages {
namespace {

constexpr uint64_t kReadAheadBytes = uint64_t{32} << 20;  // or one page, where that is more

}  // namespace

int PromptFolder::begin_read(std::string_view salt, std::span<const TokenId> tokens, int64_t i_first) {
  const std::lock_guard lock(mutex_);
  const PrefixTree::Hit hit = tree_.find(key_of(salt), tokens);
  Reading reading{hit.sequence, i_first, hit.n / kPagePositions, {}};
  const auto entry = files_.find(hit.sequence);
  if (entry == files_.end() || reading.n_pages < i_first) reading.n_pages = i_first;
  if (entry != files_.end()) entry->second.last_used = ++clock_;
  readings_.emplace(++last_reading_, std::move(reading));
  changed_.notify_all();
  return last_reading_;
}

std::optional<base::AlignedBuffer> PromptFolder::take_page(int reading) {
  const std::lock_guard lock(mutex_);
  std::deque<base::AlignedBuffer>& pages = readings_.at(reading).pages;
  if (pages.empty()) return std::nullopt;
  base::AlignedBuffer page = std::move(pages.front());
  pages.pop_front();
  read_bytes_ -= page.size();
  changed_.notify_all();
  return page;
}

bool PromptFolder::is_over(int reading) const {
  const std::lock_guard lock(mutex_);
  const Reading& r = readings_.at(reading);
  return r.pages.empty() && r.i_next >= r.n_pages;
}

void PromptFolder::end_read(int reading) {
  const std::lock_guard lock(mutex_);
  for (const base::AlignedBuffer& page : readings_.at(reading).pages) read_bytes_ -= page.size();
  readings_.erase(reading);
  changed_.notify_all();
}

void PromptFolder::on_read(std::function<void()> after, std::function<void()> before) {
  const std::lock_guard lock(mutex_);
  after_read_ = std::move(after);
  before_read_ = std::move(before);
}

// The one whose next page there is room for; 0: none.
int PromptFolder::next_reading() const {
  if (read_bytes_ > 0 && read_bytes_ + owner_.page_bytes > kReadAheadBytes) return 0;
  for (const auto& [number, reading] : readings_) {
    if (reading.i_next < reading.n_pages) return number;
  }
  return 0;
}

// None: the file was dropped meanwhile.
std::optional<PromptFolder::PageTask> PromptFolder::next_page(int reading) {
  const Reading& r = readings_.at(reading);
  const auto entry = files_.find(r.file);
  if (entry == files_.end()) return std::nullopt;
  const auto i = static_cast<size_t>(r.i_next);
  PageTask task;
  task.file = r.file;
  task.i_page = r.i_next;
  task.is_last = r.i_next + 1 == r.n_pages;
  task.path = entry->second.path;
  task.begin = entry->second.begins[i];
  task.bytes = entry->second.begins[i + 1] - task.begin;
  const auto waits = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.file == r.file; });
  if (waits != pending_.end()) {
    task.waits = &*waits;
  } else {
    task.checksum = entry->second.checksums[i];
  }
  return task;
}

// Why there is no such page; empty: there it is.
std::string PromptFolder::read_page(const PageTask& task, std::span<std::byte> image) {
  if (task.waits != nullptr) {
    if (!task.waits->copies->wait()) return "its pages cannot be read";
    std::ranges::copy(task.waits->image(static_cast<size_t>(task.i_page)), image.begin());
    return {};
  }
  if (open_file_ != task.file) {
    open_ = base::Descriptor(::open(task.path.c_str(), O_RDONLY | O_CLOEXEC));
    open_file_ = open_.is_open() ? task.file : 0;
    if (!open_.is_open()) return base::system_reason(errno);
  }
  if (!base::read_whole(open_, task.begin, image)) return "it cannot be read";
  if (checksum_of(image) != task.checksum)
    return fmt::format("page {} is damaged: the checksum does not fit", task.i_page);
  return {};
}

// Reads the page; nothing where that failed, of which somebody was told.
std::optional<base::AlignedBuffer> PromptFolder::make_page(const PageTask& task) {
  std::string wrong;
  bool is_damaged = false;
  try {
    base::AlignedBuffer image(task.bytes, "a page of a saved prompt");
    wrong = read_page(task, image.bytes());
    if (wrong.empty()) return image;
    is_damaged = true;
  } catch (const std::bad_alloc&) {
    wrong = "no memory for its pages";
  } catch (const Error& error) {
    wrong = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!files_.contains(task.file)) return std::nullopt;  // who dropped it has said why
    if (is_damaged) forget(task.file, true);
  }
  if (notice_) notice_(fmt::format("{} is left aside: {}", task.path.string(), wrong));
  return std::nullopt;
}

void PromptFolder::read_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || next_reading() != 0; });
    if (ends_) return;
    const int number = next_reading();
    const std::optional<PageTask> task = next_page(number);
    const auto before = before_read_, after = after_read_;
    if (task && task->waits != nullptr) ++task->waits->n_readers;
    lock.unlock();
    if (before) before();
    std::optional<base::AlignedBuffer> image;
    if (task) image = make_page(*task);
    const bool is_last = image && task->waits == nullptr && task->is_last;
    if (is_last) ::futimens(open_.number(), nullptr);  // used again, also for who opens the folder next
    lock.lock();
    if (task && task->waits != nullptr) --task->waits->n_readers;
    if (const auto found = readings_.find(number); found != readings_.end()) {
      Reading& reading = found->second;
      if (image) {
        read_bytes_ += image->size();
        reading.pages.push_back(std::move(*image));
        ++reading.i_next;
      } else {
        reading.n_pages = reading.i_next;  // none comes any more
      }
    }
    changed_.notify_all();
    lock.unlock();
    image.reset();
    if (after) after();
    lock.lock();
  }
}

}  // namespace assay::pages
