// One request on a scheduler of one's own (assay/scheduler.h).
#include <exception>
#include <utility>
#include <variant>

#include "assay/scheduler.h"

namespace assay {
namespace {

// What a request's callbacks throw ends the request, and is thrown to whoever waits for it.
class SingleRequest {
 public:
  SingleRequest(const Generator::TextSink& sink, bool keeps_logprobs) : sink_(sink), keeps_logprobs_(keeps_logprobs) {}

  template <class Call, class... Arguments>
  auto guarded(const Call& call, const Arguments&... arguments) -> decltype(call(arguments...)) {
    try {
      return call(arguments...);
    } catch (...) {
      if (failure_ == nullptr) failure_ = std::current_exception();
      return decltype(call(arguments...))();
    }
  }
  void add(const RequestEvent& event) {
    std::visit([this](const auto& e) { add_event(e); }, event);
  }
  bool is_over() const noexcept { return is_over_; }
  bool has_failed() const noexcept { return failure_ != nullptr; }
  Generation take() {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return std::move(result_);
  }

 private:
  void add_event(const RequestStarted&) {}
  void add_event(const RequestToken& token) {
    result_.ids.push_back(token.id);
    if (keeps_logprobs_ && token.logprobs) result_.logprobs.push_back(*token.logprobs);
    show(token.text);
  }
  void add_event(const RequestFinished& finished) {
    is_over_ = true;
    show(finished.text);
    result_.finish_reason = finished.reason;
    result_.context_full = finished.context_full;
    result_.stop_string = finished.stop_string;
    result_.n_prompt = finished.n_prompt;
    result_.n_prompt_cached = finished.n_prompt_cached;
    result_.n_dropped = finished.n_dropped;
    result_.n_in_context = finished.n_positions;
    result_.n_drafted = finished.n_drafted;
    result_.n_accepted = finished.n_accepted;
    result_.prefill = finished.prefill;
    result_.decode = finished.decode;
  }
  void add_event(const RequestFailed& failed) {
    is_over_ = true;
    if (failure_ == nullptr) failure_ = std::make_exception_ptr(failed.error);
  }
  void show(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    if (sink_ && failure_ == nullptr) sink_(text);
  }

  const Generator::TextSink& sink_;
  const bool keeps_logprobs_;
  Generation result_;
  bool is_over_ = false;
  std::exception_ptr failure_;
};

}  // namespace

Generation run_request(Scheduler& scheduler, Request request, const Generator::TextSink& sink,
                       const std::function<bool()>& cancelled) {
  SingleRequest single(sink, request.generate.n_top_logprobs >= 0);
  if (request.make_room) {
    request.make_room = [&single, make_room = std::move(request.make_room)](std::span<const TokenId> in_context,
                                                                            std::span<const TokenId> answer) {
      return single.guarded(make_room, in_context, answer);
    };
  }
  if (request.progress) {
    request.progress = [&single, progress = std::move(request.progress)](int64_t done, int64_t total) {
      single.guarded(progress, done, total);
    };
  }
  const auto id = scheduler.submit(std::move(request), [&single](RequestId, const RequestEvent& event) {
    single.guarded([&] { single.add(event); });
  });
  if (!id) throw Error(Errc::bad_request, "the scheduler's queue is full: no request more can wait there");
  for (bool is_cancelled = false; !single.is_over(); scheduler.step()) {
    if (is_cancelled || !(single.has_failed() || (cancelled && cancelled()))) continue;
    is_cancelled = scheduler.cancel(*id);
  }
  return single.take();
}

}  // namespace assay
