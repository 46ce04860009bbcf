// Prompts in files: their pages come beside the work, and a request whose pages are on their way has its place and
// waits there; what ends is saved. Nothing here waits for the disk.
#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "engine/scheduler/scheduler_state.h"

namespace assay {
namespace {

constexpr auto kSavedLook = std::chrono::milliseconds(20);  // deadlines and callers that poll are looked after as often
constexpr uint64_t kComingBytesMax = uint64_t{64} << 20;    // of images between the folder and their pages

std::span<const TokenId> wanted(const engine::Job& job) { return {job.tokens.data(), job.tokens.size() - 1}; }

}  // namespace

int64_t Scheduler::State::n_saved(const Job& job) const {
  return folder == nullptr ? 0 : folder->find(job.request.salt, wanted(job));
}

// Begins to take more of the prompt than the cache has from the folder. False: there is no more, or no memory to do so.
bool Scheduler::State::read_saved(Job& job) {
  if (folder == nullptr || job.has_started) return false;
  const int64_t n_before = tables.n_positions(job.sequence), page = tables.page_positions();
  try {
    if (n_saved(job) < n_before + page) return false;
    job.reading = folder->begin_read(job.request.salt, wanted(job), n_before / page);
  } catch (const std::bad_alloc&) {
    return false;
  }
  job.n_read_on = n_before;
  tables.truncate_to_page(job.sequence);
  return true;
}

// The pages that have come since the last step.
void Scheduler::State::take_saved() {
  while (!coming.empty() && coming.front().copies->is_over()) coming.pop_front();
  for (auto& job : running) {
    if (job->reading == 0) continue;
    try {
      if (take_saved_pages(*job)) continue;
      end_reading(*job);
      set_off(*job);
      tell_start(*job);
    } catch (const std::bad_alloc&) {
      fail(*job, Error(Errc::out_of_memory, "no memory for the tokens of a prompt"));
      job.reset();
    }
  }
  std::erase(running, nullptr);
}

// False: none comes any more.
bool Scheduler::State::take_saved_pages(Job& job) {
  const int64_t page = tables.page_positions();
  uint64_t coming_bytes = 0;
  for (const engine::ComingPage& c : coming) coming_bytes += c.image.size();
  while (coming.empty() || coming_bytes < kComingBytesMax) {
    std::optional<base::AlignedBuffer> image = folder->take_page(job.reading);
    if (!image) return !folder->is_over(job.reading);
    const auto tokens = wanted(job).subspan(static_cast<size_t>(tables.n_positions(job.sequence)));
    coming_bytes += image->size();
    engine::ComingPage& c =
        coming.emplace_back(engine::ComingPage{std::move(*image), std::make_unique<base::PendingCopies>()});
    const bool is_there =
        tables.make_room(1) &&
        tables.begin_append_page(job.sequence, tokens.first(static_cast<size_t>(page)), c.image.bytes(), *c.copies);
    if (c.copies->is_over()) {
      coming_bytes -= c.image.size();
      coming.pop_back();
    }
    if (!is_there) return false;
  }
  return true;
}

// With the pages that have come so far.
void Scheduler::State::end_reading(Job& job) {
  if (job.reading == 0) return;
  folder->end_read(std::exchange(job.reading, 0));
  tables.truncate(job.sequence, tables.n_positions(job.sequence));  // as far as the windows before it were saved
  job.n_saved += std::max<int64_t>(tables.n_positions(job.sequence) - job.n_read_on, 0);
}

// All that is left waits for pages.
void Scheduler::State::await_saved() {
  const bool one_reads = std::any_of(running.begin(), running.end(), [](const auto& job) { return job->reading != 0; });
  if (!one_reads) return;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, kSavedLook, [this] { return has_news; });
}

void Scheduler::State::save(const Job& job) {
  if (folder == nullptr || job.sequence < 0) return;
  try {
    tables.give_back_windows(job.sequence);  // what the cache does not keep is not saved either
    const auto has_window = [&](int64_t i_page) {
      return tables.image_bytes(job.sequence, i_page) == tables.page_bytes();
    };
    folder->keep(job.request.salt, tables.tokens(job.sequence),
                 {has_window, [&](int64_t i_page, std::span<std::byte> image, base::PendingCopies& copies) {
                    return tables.begin_read_page(job.sequence, i_page, image, copies);
                  }});
  } catch (const std::bad_alloc&) {
    notice("a prompt is not saved: no memory");
  } catch (const Error& error) {
    if (error.code != Errc::out_of_memory) throw;
    notice(std::string("a prompt is not saved: ") + error.what());
  }
}

}  // namespace assay
