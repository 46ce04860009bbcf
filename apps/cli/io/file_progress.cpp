// The lines of file_progress.h.
#include "io/file_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/terminal.h"

namespace assay::cli {

FileWatch::FileWatch(std::string what, std::string unit, int64_t unit_size)
    : what_(std::move(what)), unit_(std::move(unit)), unit_size_(unit_size), line_(what_, unit_),
      start_(std::chrono::steady_clock::now()), told_(start_) {
  catch_interrupts();
}

FileProgress FileWatch::hooks() {
  return {[this](int64_t done, int64_t total, std::string_view thing) { update(done, total, thing); },
          [] { return interrupted() != 0; }};
}

std::function<void(const std::string&, int64_t, int64_t, uint64_t, uint64_t)> FileWatch::tensor_hook() {
  return [this](const std::string& tensor, int64_t i, int64_t n, uint64_t done, uint64_t total) {
    update(static_cast<int64_t>(done), static_cast<int64_t>(total), fmt::format("{} ({} of {})", tensor, i + 1, n));
  };
}

void FileWatch::update(int64_t done, int64_t total, std::string_view thing) {
  if (stderr_is_terminal()) {
    line_.update(done / unit_size_, total / unit_size_, std::string(thing));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < std::chrono::seconds(10)) return;
  told_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = seconds * static_cast<double>(total - done) / static_cast<double>(std::max<int64_t>(done, 1));
  to_stderr(fmt::format("{}: {} of {} {} ({} %, {:.0f} s left), {}\n", what_, done / unit_size_, total / unit_size_,
                        unit_, done * 100 / std::max<int64_t>(total, 1), left, thing));
}

int end_of_interrupted() {
  notice("interrupted: nothing was written");
  return exit_code_of_signal(interrupted());
}

}  // namespace assay::cli
