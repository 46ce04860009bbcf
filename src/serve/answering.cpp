// Answers of the model: whole, and in pieces as server-sent events.
#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "serve/server_state.h"
#include "serve/workers.h"

namespace assay {

using serve::Clock;
using serve::Connection;
using serve::Exchange;
using serve::Flow;
using serve::Response;

namespace asio = boost::asio;

bool serve::is_gone(asio::ip::tcp::socket& socket) {
  char byte = 0;
  const ssize_t n = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

namespace {

using serve::is_gone;
using serve::kLookAgain;

api::ApiError ending_error(const RequestFinished& finished, const ServerOptions& options) {
  if (finished.reason == FinishReason::late) {
    return api::ApiError(503, fmt::format("the request took longer than {} s: --request-timeout raises it", options.request_s_max), "", "timeout");
  }
  return api::ApiError(503, fmt::format("the server ended while the answer was written, after {} s of waiting: --drain-timeout raises it", options.drain_s_max), "", "draining");
}

bool is_whole(const RequestFinished& finished) { return finished.reason == FinishReason::stop || finished.reason == FinishReason::length; }

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

// One choice of a stream: logprobs of tokens whose text is not certain yet.
struct Pending {
  std::vector<TokenLogprobs> logprobs;
  size_t n_sent = 0;
  bool over = false;
};

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

void Server::State::measure(const Flow::Item& item, const Exchange& e, Clock::time_point& last) {
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  if (const auto* started = std::get_if<RequestStarted>(&item.event)) metrics.in_queue.add(started->queue_ms / 1000);
  if (std::get_if<RequestToken>(&item.event) != nullptr) {
    if (last == Clock::time_point()) {
      metrics.first_token.add(seconds(item.at - e.begun));
    } else {
      metrics.between_tokens.add(seconds(item.at - last));
    }
    last = item.at;
  }
}

asio::awaitable<void> Server::State::complete(Connection& c, Exchange& e, api::Where where) {
  const SchedulerFigures f = scheduler.figures();
  const api::ApiError full(429, fmt::format("the queue is full: {} requests run and {} wait; --max-queue raises the {}", f.n_running, f.n_waiting, f.n_waiting_max),
                           "", "queue_full");
  if (f.n_waiting >= f.n_waiting_max) throw full;  // before any work
  const std::string& body = e.request->body;
  const std::function<api::Asked()> read_body = [this, where, &body, &e] { return api.read(where, body, e.client.name, e.client.weight); };
  const api::Asked asked = co_await serve::on_workers<api::Asked>(workers, read_body);
  e.user = asked.draft.user;
  const auto flow = std::make_shared<Flow>(io);
  std::vector<RequestId> ids;
  const auto deadline = e.begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.request_s_max));
  for (size_t i = 0; i < asked.requests.size(); ++i) {
    Request request = asked.requests[i];
    request.deadline = deadline;
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

asio::awaitable<void> Server::State::whole_answer(Connection& c, Exchange& e, const api::Asked& asked, std::shared_ptr<Flow> flow,
                                                  std::vector<RequestId> ids) {
  std::vector<api::ChoiceReader> readers = readers_of(asked);
  std::vector<Clock::time_point> last(ids.size());
  std::optional<api::ApiError> failure;
  size_t n_over = 0;
  while (n_over < readers.size()) {
    const std::vector<Flow::Item> items = co_await next_items(*flow);
    for (const Flow::Item& item : items) {
      measure(item, e, last[item.i_choice]);
      if (const auto* token = std::get_if<RequestToken>(&item.event)) {
        readers[item.i_choice].token(*token);
      } else if (const auto* finished = std::get_if<RequestFinished>(&item.event)) {
        readers[item.i_choice].finish(*finished);
        if (!is_whole(*finished) && !failure) failure = ending_error(*finished, options);
        ++n_over;
      } else if (const auto* failed = std::get_if<RequestFailed>(&item.event)) {
        if (!failure) failure = serve::to_api_error(failed->error);
        ++n_over;
      }
    }
    if (failure) cancel(ids);
    if (n_over < readers.size() && is_gone(c.socket)) {
      cancel(ids);
      e.finish = "client gone";
      e.closes = true;
      co_return;
    }
  }
  if (failure) throw *failure;
  const std::vector<api::Choice> choices = choices_of(readers);
  for (const api::Choice& choice : choices) {
    e.n_prompt += choice.finished.n_prompt, e.n_cached += choice.finished.n_prompt_cached, e.n_answer += choice.finished.n_answer;
    e.finish = name(choice.finished.reason);
    ++metrics.finished[e.finish];
  }
  Response response{200, api.answer(asked, choices)};
  if (!asked.ignored.empty()) response.headers.emplace_back("x-ignored-params", serve::header_list(asked.ignored));
  co_await send(c, e, std::move(response));
}

asio::awaitable<void> Server::State::stream_answer(Connection& c, Exchange& e, const api::Asked& asked, std::shared_ptr<Flow> flow,
                                                   std::vector<RequestId> ids) {
  const bool chunked = !e.request->is_http_1_0;
  if (!chunked) e.closes = true;
  std::string out;
  const auto put = [&](const std::string& json) {
    if (json.empty()) return;
    const std::string event = fmt::format("data: {}\n\n", json);
    out += chunked ? fmt::format("{:x}\r\n{}\r\n", event.size(), event) : event;
  };
  Response head{200, "", "text/event-stream"};
  head.headers = {{"x-request-id", e.id}};
  if (const std::string origin = access.cors_origin(*e.request); !origin.empty()) {
    head.headers.emplace_back("Access-Control-Allow-Origin", origin);
    head.headers.emplace_back("Vary", "Origin");
  }
  if (!asked.ignored.empty()) head.headers.emplace_back("x-ignored-params", serve::header_list(asked.ignored));
  e.status = 200;
  out = serve::head_text(head, e.closes, true);
  std::vector<Pending> pending(ids.size());
  std::vector<api::ChoiceReader> readers = readers_of(asked);
  std::vector<Clock::time_point> last(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) put(api.chunk_head(asked, i));
  std::optional<api::ApiError> failure;
  const auto send_pieces = [&](size_t i, const std::vector<AnswerPiece>& pieces) {
    Pending& p = pending[i];
    for (const AnswerPiece& piece : pieces) {
      put(api.chunk(asked, i, piece, p.logprobs, p.n_sent));
      p.n_sent += piece.text.size();
      p.logprobs.clear();
    }
  };
  const auto on_item = [&](const Flow::Item& item) {
    measure(item, e, last[item.i_choice]);
    Pending& p = pending[item.i_choice];
    api::ChoiceReader& reader = readers[item.i_choice];
    if (const auto* token = std::get_if<RequestToken>(&item.event)) {
      if (token->logprobs) p.logprobs.push_back(*token->logprobs);
      send_pieces(item.i_choice, reader.token(*token));
    } else if (const auto* finished = std::get_if<RequestFinished>(&item.event)) {
      p.over = true;
      send_pieces(item.i_choice, reader.finish(*finished));
      if (!p.logprobs.empty()) send_pieces(item.i_choice, {{AnswerPiece::Kind::text, ""}});
      e.n_prompt += finished->n_prompt, e.n_cached += finished->n_prompt_cached, e.n_answer += finished->n_answer;
      e.finish = name(finished->reason);
      if (is_whole(*finished)) {
        put(api.chunk_end(asked, item.i_choice, reader.choice()));
        ++metrics.finished[e.finish];
      } else if (!failure) {
        failure = ending_error(*finished, options);
      }
    } else if (const auto* failed = std::get_if<RequestFailed>(&item.event)) {
      p.over = true;
      if (!failure) failure = serve::to_api_error(failed->error);
    }
  };
  const auto all_over = [&] { return std::all_of(pending.begin(), pending.end(), [](const Pending& p) { return p.over; }); };
  while (!all_over()) {
    const std::vector<Flow::Item> items = co_await next_items(*flow);
    for (const Flow::Item& item : items) on_item(item);
    if (failure) cancel(ids);
    bool open = true;
    if (!out.empty()) open = co_await write(c, std::exchange(out, {}));
    if (!open || is_gone(c.socket)) {
      if (open && all_over()) break;
      cancel(ids);
      e.finish = "client gone";
      e.closes = true;
      co_return;
    }
  }
  if (failure) {
    e.finish = failure->code.empty() ? "error" : failure->code;
    put(api::error_json(*failure));
  } else if (asked.draft.include_usage) {
    put(api.chunk_usage(asked, choices_of(readers)));
  }
  put("[DONE]");
  if (chunked) out += "0\r\n\r\n";
  co_await write(c, std::move(out));
}

}  // namespace assay
