// The events of one HTTP request's choices on their way from the thread that steps to the thread of the sockets.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "assay/scheduler.h"

namespace assay::serve {

class Flow;

// Tells flows that there is something for them: all of a step's together, once its last token is drawn. A wake-up for
// each token would cost the thread that steps more than drawing it, and take a core from the next step as often.
class Bell {
 public:
  explicit Bell(boost::asio::io_context& io) : io_(io) {}

  // By the thread that steps.
  void add(std::weak_ptr<Flow> flow) { waiting_.push_back(std::move(flow)); }
  void ring();

 private:
  boost::asio::io_context& io_;
  std::vector<std::weak_ptr<Flow>> waiting_;
};

// What the stepping thread keeps of a flow is its mail alone: requests may outlive the sockets, whose timers may not.
class Flow : public std::enable_shared_from_this<Flow> {
 public:
  struct Item {
    size_t i_choice = 0;
    std::chrono::steady_clock::time_point at;
    RequestEvent event;
  };

  Flow(boost::asio::io_context& io, Bell& bell) : timer(io), bell_(bell) {}

  // By the thread that steps.
  RequestSink sink(size_t i_choice) {
    return [mail = mail_, flow = weak_from_this(), &bell = bell_, i_choice](RequestId, const RequestEvent& event) {
      bool was_empty = false;
      {
        const std::lock_guard lock(mail->mutex);
        was_empty = mail->items.empty();
        mail->items.push_back({i_choice, std::chrono::steady_clock::now(), event});
      }
      if (was_empty) bell.add(flow);
      // It is told at the begin of a step, which may be a long one, and sends the head of an answer.
      if (std::holds_alternative<RequestStarted>(event)) bell.ring();
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
  Bell& bell_;
  std::shared_ptr<Mail> mail_ = std::make_shared<Mail>();
};

inline void Bell::ring() {
  if (waiting_.empty()) return;
  boost::asio::post(io_, [flows = std::exchange(waiting_, {})] {
    for (const auto& flow : flows) {
      if (const auto waiting = flow.lock()) waiting->timer.cancel();
    }
  });
}

}  // namespace assay::serve
