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

// What the stepping thread keeps of a flow is its mail alone: requests may outlive the sockets, whose timers may not.
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
    return [mail = mail_, flow = weak_from_this(), &io = io_, i_choice](RequestId, const RequestEvent& event) {
      bool was_empty = false;
      {
        const std::lock_guard lock(mail->mutex);
        was_empty = mail->items.empty();
        mail->items.push_back({i_choice, std::chrono::steady_clock::now(), event});
      }
      if (!was_empty) return;
      boost::asio::post(io, [flow] {
        if (const auto waiting = flow.lock()) waiting->timer.cancel();
      });
    };
  }
  // By the thread of the sockets: what came since the last call. Who finds nothing waits on the timer, which is
  // cancelled as soon as there is something.
  std::vector<Item> take() {
    const std::lock_guard lock(mail_->mutex);
    return std::exchange(mail_->items, {});
  }

  boost::asio::steady_timer timer;

 private:
  struct Mail {
    std::mutex mutex;
    std::vector<Item> items;
  };
  boost::asio::io_context& io_;
  std::shared_ptr<Mail> mail_ = std::make_shared<Mail>();
};

}  // namespace assay::serve
