// Answers of the model: whole, and in pieces as server-sent events.
#include <fmt/format.h>
#include <poll.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "api/stream.h"
#include "serve/server_state.h"
#include "serve/workers.h"

namespace assay {

using serve::Clock;
using serve::Connection;
using serve::Exchange;
using serve::Flow;
using serve::Response;

namespace asio = boost::asio;

bool serve::is_gone(Connection& c) {
  pollfd end{c.socket.native_handle(), POLLRDHUP, 0};  // also where a next request, or TLS's farewell, lies unread
  return ::poll(&end, 1, 0) > 0;
}

namespace {

using serve::is_gone;
using serve::kLookAgain;

api::ApiError ending_error(const RequestFinished& finished, const ServerOptions& options) {
  if (finished.reason == FinishReason::late) {
    return api::ApiError(
        503, fmt::format("the request took longer than {} s: --request-timeout raises it", options.request_s_max), "",
        "timeout");
  }
  return api::ApiError(
      503,
      fmt::format("the server ended while the answer was written, after {} s of waiting: --drain-timeout raises it",
                  options.drain_s_max),
      "", "draining");
}

// Until something came, at most for a short time.
asio::awaitable<std::vector<Flow::Item>> next_items(Flow& flow) {
  std::vector<Flow::Item> items = flow.take();
  if (items.empty()) {
    boost::system::error_code cancelled;
    flow.timer.expires_after(kLookAgain);
    co_await flow.timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    items = flow.take();
  }
  co_return items;
}

std::vector<api::ChoiceReader> readers_of(const api::Asked& asked) {
  std::vector<api::ChoiceReader> readers;
  for (size_t i = 0; i < asked.requests.size(); ++i) readers.emplace_back(asked, i);
  return readers;
}

std::vector<api::Choice> choices_of(const std::vector<api::ChoiceReader>& readers) {
  std::vector<api::Choice> choices;
  for (const api::ChoiceReader& reader : readers) choices.push_back(reader.choice());
  return choices;
}

}  // namespace

void Server::State::cancel(const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) scheduler.cancel(id);
}

void Server::State::measure(const Flow::Item& item, const Exchange& e, serve::Progress& progress) {
  const auto in_seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  if (const auto* started = std::get_if<RequestStarted>(&item.event)) {
    metrics.in_queue.add(started->queue_ms / 1000);
    progress.has_started = true;
  } else if (std::get_if<RequestToken>(&item.event) != nullptr) {
    if (progress.last_token == Clock::time_point()) {
      metrics.first_token.add(in_seconds(item.at - e.begun));
    } else {
      metrics.between_tokens.add(in_seconds(item.at - progress.last_token));
    }
    progress.last_token = item.at;
  } else {
    progress.is_over = true;
  }
}

void Server::State::client_gone(Exchange& e, const std::vector<RequestId>& ids,
                                const std::vector<serve::Progress>& choices) {
  cancel(ids);
  for (const serve::Progress& p : choices) {
    if (!p.is_over)
      ++metrics.cancelled[!p.has_started ? "queued" : p.last_token == Clock::time_point() ? "prefill" : "decode"];
  }
  e.finish = "client gone";
  e.closes = true;
}

asio::awaitable<void> Server::State::complete(Connection& c, Exchange& e, api::Where where) {
  const SchedulerFigures f = scheduler.figures();
  const api::ApiError full(429,
                           fmt::format("the queue is full: {} requests run and {} wait; --max-queue raises the {}",
                                       f.n_running, f.n_waiting, f.n_waiting_max),
                           "", "queue_full");
  if (f.n_waiting >= f.n_waiting_max) throw full;  // before any work
  const std::string& body = e.request->body;
  const std::function<api::Asked()> read_body = [this, where, &body, &e] {
    api::Asked asked = api.read(where, body, e.client.name, e.client.weight);
    for (size_t i = 0; options.log_prompts && i < asked.requests.size(); i += static_cast<size_t>(asked.draft.n))
      note_prompt(e, asked.requests[i].prompt);
    return asked;
  };
  const api::Asked asked = co_await serve::on_workers<api::Asked>(workers, read_body);
  e.user = asked.draft.user;
  const auto flow = std::make_shared<Flow>(io, bell);
  std::vector<RequestId> ids;
  const auto deadline =
      e.begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.request_s_max));
  for (size_t i = 0; i < asked.requests.size(); ++i) {
    Request request = asked.requests[i];
    request.deadline = deadline;
    if (options.share_cache) request.salt = asked.draft.cache_salt;
    std::optional<RequestId> id;
    try {
      id = scheduler.submit(std::move(request), flow->sink(i));
    } catch (const Error&) {
      cancel(ids);
      throw;
    }
    if (!id) {
      cancel(ids);
      throw full;
    }
    ids.push_back(*id);
  }
  c.deadline = Clock::time_point::max();
  if (asked.draft.stream) {
    co_await stream_answer(c, e, asked, flow, ids);
  } else {
    co_await whole_answer(c, e, asked, flow, ids);
  }
}

asio::awaitable<void> Server::State::whole_answer(Connection& c, Exchange& e, const api::Asked& asked,
                                                  std::shared_ptr<Flow> flow, std::vector<RequestId> ids) {
  std::vector<api::ChoiceReader> readers = readers_of(asked);
  std::vector<serve::Progress> choices(ids.size());
  std::optional<api::ApiError> failure;
  size_t n_over = 0;
  while (n_over < readers.size()) {
    const std::vector<Flow::Item> items = co_await next_items(*flow);
    for (const Flow::Item& item : items) {
      measure(item, e, choices[item.i_choice]);
      if (const auto* token = std::get_if<RequestToken>(&item.event)) {
        readers[item.i_choice].token(*token);
      } else if (const auto* finished = std::get_if<RequestFinished>(&item.event)) {
        readers[item.i_choice].finish(*finished);
        if (!api::is_whole(*finished) && !failure) failure = ending_error(*finished, options);
        ++n_over;
      } else if (const auto* failed = std::get_if<RequestFailed>(&item.event)) {
        if (!failure) failure = serve::to_api_error(failed->error, e);
        ++n_over;
      }
    }
    if (failure) cancel(ids);
    if (n_over < readers.size() && is_gone(c)) {
      client_gone(e, ids, choices);
      co_return;
    }
  }
  if (failure) throw *failure;
  const std::vector<api::Choice> said = choices_of(readers);
  for (const api::Choice& choice : said) {
    e.n_prompt += choice.finished.n_prompt, e.n_cached += choice.finished.n_prompt_cached,
        e.n_answer += choice.finished.n_answer;
    e.finish = name(choice.finished.reason);
    ++metrics.finished[e.finish];
  }
  const std::function<std::string()> write_answer = [this, &asked, &said] { return api.answer(asked, said); };
  std::string text = co_await serve::on_workers<std::string>(workers, write_answer);
  Response response{200, std::move(text)};
  if (!asked.ignored.empty()) response.headers.emplace_back("x-ignored-params", serve::header_list(asked.ignored));
  co_await send(c, e, std::move(response));
}

// Sends what waits, one piece at a time, and tells the stream's loop when a piece is out.
asio::awaitable<void> Server::State::pump(std::shared_ptr<Connection> c, std::shared_ptr<serve::Outlet> outlet,
                                          std::shared_ptr<Flow> flow) {
  while (outlet->is_open && !outlet->waiting.empty()) {
    std::string text = std::exchange(outlet->waiting, {});
    outlet->n_in_flight = text.size();
    outlet->is_open = co_await write(*c, std::move(text));
    outlet->n_in_flight = 0;
    if (outlet->is_awaited || !outlet->is_open) flow->timer.cancel();
  }
  outlet->is_sending = false;
}

void Server::State::flush(Connection& c, const std::shared_ptr<serve::Outlet>& outlet,
                          const std::shared_ptr<Flow>& flow) {
  if (outlet->is_sending || outlet->waiting.empty()) return;
  outlet->is_sending = true;
  asio::co_spawn(io, pump(c.shared_from_this(), outlet, flow), [outlet](const std::exception_ptr& fault) {
    if (!fault) return;
    outlet->is_open = outlet->is_sending = false;
    outlet->n_in_flight = 0;
  });
}

asio::awaitable<void> Server::State::emptied(Flow& flow, serve::Outlet& outlet) {
  outlet.is_awaited = true;
  while (outlet.is_sending) {
    boost::system::error_code cancelled;
    flow.timer.expires_after(kLookAgain);
    co_await flow.timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

// A client that does not take what it asked for has its answer stand aside, so that neither memory nor time goes into
// it.
void Server::State::pace(serve::Outlet& outlet, const std::vector<RequestId>& ids, bool& is_held) {
  if (!is_held && outlet.size() > options.unsent_bytes_max) {
    outlet.is_awaited = is_held = true;
    for (const RequestId id : ids) scheduler.hold(id);
  } else if (is_held && outlet.size() <= options.unsent_bytes_max / 2) {
    outlet.is_awaited = is_held = false;
    for (const RequestId id : ids) scheduler.resume(id);
  }
}

namespace {

// Ends a connection whose stream ends by a fault while bytes are on their way.
class EndOfStream {
 public:
  EndOfStream(Connection& c, std::shared_ptr<serve::Outlet> outlet) : c_(c), outlet_(std::move(outlet)) {}
  ~EndOfStream() {
    boost::system::error_code ignored;
    if (outlet_->is_sending) c_.socket.close(ignored);
  }
  EndOfStream(const EndOfStream&) = delete;
  EndOfStream& operator=(const EndOfStream&) = delete;

 private:
  Connection& c_;
  std::shared_ptr<serve::Outlet> outlet_;
};

}  // namespace

std::string Server::State::stream_head(Exchange& e, const api::Asked& asked) const {
  Response head{200, "", "text/event-stream"};
  head.headers = {{"x-request-id", e.id}};
  if (const std::string origin = access.cors_origin(*e.request); !origin.empty()) {
    head.headers.emplace_back("Access-Control-Allow-Origin", origin);
    head.headers.emplace_back("Vary", "Origin");
  }
  if (!asked.ignored.empty()) head.headers.emplace_back("x-ignored-params", serve::header_list(asked.ignored));
  e.status = 200;
  return serve::head_text(head, e.closes, true);
}

asio::awaitable<void> Server::State::stream_answer(Connection& c, Exchange& e, const api::Asked& asked,
                                                   std::shared_ptr<Flow> flow, std::vector<RequestId> ids) {
  const bool chunked = !e.request->is_http_1_0;
  if (!chunked) e.closes = true;
  const auto outlet = std::make_shared<serve::Outlet>();
  const EndOfStream guard(c, outlet);
  outlet->waiting = stream_head(e, asked);
  const auto put = [&](const std::string& events) {
    if (!events.empty()) outlet->waiting += chunked ? fmt::format("{:x}\r\n{}\r\n", events.size(), events) : events;
  };
  const std::unique_ptr<api::StreamWriter> writer = api::stream_writer(api, asked);
  std::vector<serve::Progress> choices(ids.size());
  size_t n_over = 0;
  bool is_held = false;
  put(writer->begin());
  std::optional<api::ApiError> failure;
  const auto on_item = [&](const Flow::Item& item) {
    measure(item, e, choices[item.i_choice]);
    if (const auto* started = std::get_if<RequestStarted>(&item.event)) {
      writer->started(item.i_choice, *started, item.at);
    } else if (const auto* token = std::get_if<RequestToken>(&item.event)) {
      put(writer->token(item.i_choice, *token, item.at));
    } else if (const auto* finished = std::get_if<RequestFinished>(&item.event)) {
      ++n_over;
      put(writer->finish(item.i_choice, *finished));
      e.n_prompt += finished->n_prompt, e.n_cached += finished->n_prompt_cached, e.n_answer += finished->n_answer;
      e.finish = name(finished->reason);
      if (api::is_whole(*finished)) {
        ++metrics.finished[e.finish];
      } else if (!failure) {
        failure = ending_error(*finished, options);
      }
    } else if (const auto* failed = std::get_if<RequestFailed>(&item.event)) {
      ++n_over;
      if (!failure) failure = serve::to_api_error(failed->error, e);
    }
  };
  while (n_over < ids.size()) {
    const std::vector<Flow::Item> items = co_await next_items(*flow);
    for (const Flow::Item& item : items) on_item(item);
    if (failure) cancel(ids);
    flush(c, outlet, flow);
    pace(*outlet, ids, is_held);
    if (!outlet->is_open || is_gone(c)) {
      if (outlet->is_open && n_over == ids.size()) break;
      boost::system::error_code ignored;
      c.socket.close(ignored);  // ends what is on its way
      client_gone(e, ids, choices);
      co_await emptied(*flow, *outlet);
      co_return;
    }
  }
  if (failure) e.finish = failure->code.empty() ? "error" : failure->code;
  put(writer->end(failure));
  if (chunked) outlet->waiting += "0\r\n\r\n";
  flush(c, outlet, flow);
  co_await emptied(*flow, *outlet);
  if (!outlet->is_open) e.closes = true;
}

}  // namespace assay
