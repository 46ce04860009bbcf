// For tests: the CPU's executor, whose images of pages come and go late, as from a device that copies beside its runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/context_state.h"
#include "ops/plan/forwarding_executor.h"

namespace assay::test {

class LateImages final : public ops::ForwardingExecutor {
 public:
  explicit LateImages(std::unique_ptr<ops::Executor> inner)
      : ForwardingExecutor(std::move(inner)), thread_([this](const std::stop_token& stop) { copy_until(stop); }) {}

  // In the place of the context's executor, which it forwards to.
  static LateImages& put_into(Context& context) {
    auto made = std::make_unique<LateImages>(std::move(context.state().executor));
    LateImages& executor = *made;
    context.state().executor = std::move(made);
    return executor;
  }

  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                       base::PendingCopies& copies) const override {
    Copy copy{image, std::vector<std::byte>(image.size()), &copies};
    if (!read_page(sequence, i_page, copy.bytes)) return false;
    add(std::move(copy));
    return true;
  }
  bool begin_append_page(int sequence, int64_t n_positions, std::span<const std::byte> image,
                         base::PendingCopies& copies) override {
    if (!append_page(sequence, n_positions, image)) return false;
    add({{}, std::vector<std::byte>(image.begin(), image.end()), &copies, image});
    n_looks_[sequence] = 3;
    return true;
  }
  bool is_ready(int sequence) const override {
    const auto looks = n_looks_.find(sequence);
    if (looks == n_looks_.end() || looks->second == 0) return true;
    return --looks->second, ++n_unready, false;
  }

  mutable int n_read = 0, n_unready = 0;

 private:
  struct Copy {
    std::span<std::byte> to;
    std::vector<std::byte> bytes;
    base::PendingCopies* copies;
    std::span<const std::byte> from = {};  // of one that is appended: it stays what it was
  };
  void add(Copy copy) const {
    copy.copies->begin();
    const std::lock_guard lock(mutex_);
    n_read += copy.from.empty() ? 1 : 0;
    waiting_.push_back(std::move(copy));
  }
  void copy_until(const std::stop_token& stop) {
    for (bool ends = false; !ends;) {
      ends = stop.stop_requested();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      std::vector<Copy> now;
      {
        const std::lock_guard lock(mutex_);
        now.swap(waiting_);
      }
      for (const Copy& copy : now) {
        std::copy_n(copy.bytes.begin(), copy.to.size(), copy.to.begin());
        EXPECT_TRUE(copy.from.empty() || std::equal(copy.from.begin(), copy.from.end(), copy.bytes.begin()));
        copy.copies->end(true);
      }
    }
  }

  mutable std::mutex mutex_;
  mutable std::vector<Copy> waiting_;
  mutable std::map<int, int> n_looks_;  // for which a sequence is not ready yet
  std::jthread thread_;                 // the last: it uses the others
};

}  // namespace assay::test
