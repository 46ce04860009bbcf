// The events of one HTTP request's choices on their way from the thread that steps to the thread of the sockets.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "assay/scheduler.h"

namespace assay::serve {

class Flow : public std::enable_shared_from_this<Flow> {
 public:
  struct Item {
    size_t i_choice = 0;
    std::chrono::steady_clock::time_point at;
    RequestEvent event;
  };

  explicit Flow(boost::asio::io_context& io) : timer(io), io_(io) {}

  // By the thread that steps.
  RequestSink sink(size_t i_choice) {
    return [self = shared_from_this(), i_choice](RequestId, const RequestEvent& event) {
      bool was_empty = false;
      {
        const std::lock_guard lock(self->mutex_);
        was_empty = self->items_.empty();
        self->items_.push_back({i_choice, std::chrono::steady_clock::now(), event});
      }
      if (was_empty) boost::asio::post(self->io_, [self] { self->timer.cancel(); });
    };
  }
  // By the thread of the sockets: what came since the last call. Who finds nothing waits on the timer, which is cancelled as
  // soon as there is something.
  std::vector<Item> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

  boost::asio::steady_timer timer;

 private:
  boost::asio::io_context& io_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

}  // namespace assay::serve
