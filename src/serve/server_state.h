// What a Server holds, for its own sources: routes.cpp answers, server.cpp has the sockets.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/api.h"
#include "api/error.h"
#include "assay/embed.h"
#include "assay/server.h"
#include "serve/access.h"
#include "serve/flow.h"
#include "serve/http_request.h"
#include "serve/limits.h"
#include "serve/metrics.h"

namespace assay {

namespace serve {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Answers, less those that take the model: health, models, props, metrics, the document. ApiError.
Response error_response(const api::ApiError& error);
// Names from outside in a header: what could end it becomes "?", and it ends after 1 KiB.
std::string header_list(const std::vector<std::string>& names);
std::string head_text(const Response& response, bool closes, bool is_stream);
// Which API's answers a path without its /v1 has; nothing: none.
std::optional<api::Where> answers_at(std::string_view path) noexcept;
inline constexpr auto kLookAgain = std::chrono::milliseconds(50);  // for a client that has gone

struct Connection : std::enable_shared_from_this<Connection> {
  explicit Connection(asio::ip::tcp::socket s) : socket(std::move(s)) {}
  asio::ip::tcp::socket socket;
  Clock::time_point deadline = Clock::time_point::max();           // then it is closed
  std::string inbox;                                               // read and not yet taken
  bool is_idle = false;                                            // nothing of a next request is there
  std::string local;                                               // the address it came in on
  std::unique_ptr<asio::ssl::stream<asio::ip::tcp::socket&>> tls;  // null: in the clear
};

// Whether the other end has closed: in the clear, what it said before and is not read yet hides that.
bool is_gone(Connection& c);

// What of a stream is not sent yet.
struct Outlet {
  std::string waiting;     // behind what is being sent
  size_t n_in_flight = 0;  // bytes
  bool is_open = true, is_sending = false;
  bool is_awaited = false;  // the stream's loop is to be told of every piece that is out
  size_t size() const noexcept { return waiting.size() + n_in_flight; }
};

// One request at work, for the log.
struct Exchange {
  const HttpRequest* request = nullptr;
  Client client;
  std::string id;
  Clock::time_point begun = Clock::now();
  int status = 0;
  int64_t n_prompt = 0, n_cached = 0, n_answer = 0;
  std::string finish, user, fault;
  std::vector<std::string> prompts;  // where they are logged
  bool closes = false;
};

// How far a choice is.
struct Progress {
  bool has_started = false, is_over = false;
  Clock::time_point last_token;
};

}  // namespace serve

struct Server::State {
  State(std::shared_ptr<const Model> loaded, const ServerOptions& asked);

  // server.cpp
  void listen();
  boost::asio::awaitable<void> accept();
  boost::asio::awaitable<void> watch(std::function<bool()> ends);
  boost::asio::awaitable<void> serve_connection(std::shared_ptr<serve::Connection> c);
  boost::asio::awaitable<bool> greet(serve::Connection& c);  // false: no TLS came about
  boost::asio::awaitable<void> part(serve::Connection& c);
  boost::asio::awaitable<bool> read(serve::Connection& c, serve::RequestReader& reader,
                                    std::optional<api::ApiError>& refusal);
  boost::asio::awaitable<bool> write(serve::Connection& c, std::string text);
  boost::asio::awaitable<bool> send(serve::Connection& c, serve::Exchange& e, serve::Response response);
  boost::asio::awaitable<void> answer(serve::Connection& c, serve::Exchange& e);
  void note(const serve::Exchange& e);

  // answering.cpp
  boost::asio::awaitable<void> complete(serve::Connection& c, serve::Exchange& e, api::Where where);
  boost::asio::awaitable<void> whole_answer(serve::Connection& c, serve::Exchange& e, const api::Asked& asked,
                                            std::shared_ptr<serve::Flow> flow, std::vector<RequestId> ids);
  boost::asio::awaitable<void> stream_answer(serve::Connection& c, serve::Exchange& e, const api::Asked& asked,
                                             std::shared_ptr<serve::Flow> flow, std::vector<RequestId> ids);
  void note_prompt(serve::Exchange& e, std::span<const TokenId> prompt) const;  // for the log; by who reads the body
  std::string stream_head(serve::Exchange& e, const api::Asked& asked) const;
  void flush(serve::Connection& c, const std::shared_ptr<serve::Outlet>& outlet,
             const std::shared_ptr<serve::Flow>& flow);
  boost::asio::awaitable<void> pump(std::shared_ptr<serve::Connection> c, std::shared_ptr<serve::Outlet> outlet,
                                    std::shared_ptr<serve::Flow> flow);
  boost::asio::awaitable<void> emptied(serve::Flow& flow, serve::Outlet& outlet);
  void pace(serve::Outlet& outlet, const std::vector<RequestId>& ids, bool& is_held);
  // embedding.cpp
  boost::asio::awaitable<void> embed(serve::Connection& c, serve::Exchange& e);

  void measure(const serve::Flow::Item& item, const serve::Exchange& e, serve::Progress& progress);
  void cancel(const std::vector<RequestId>& ids);
  void client_gone(serve::Exchange& e, const std::vector<RequestId>& ids, const std::vector<serve::Progress>& choices);
  void turn_away(boost::asio::ip::tcp::socket& socket);
  bool make_room_for_connections();

  // routes.cpp
  void check_access(const serve::HttpRequest& request, serve::Exchange& e, const std::string& local) const;
  std::optional<serve::Response> quick(const serve::HttpRequest& request);
  std::string props() const;
  std::vector<serve::Limit> limits() const;
  int64_t retry_after_s() const;

  ServerOptions options;
  std::shared_ptr<const Model> model;
  Scheduler scheduler;
  api::Api api;
  serve::Access access;
  serve::Metrics metrics;
  std::unique_ptr<boost::asio::ssl::context> tls;  // null: HTTP in the clear
  boost::asio::io_context io{1};
  serve::Bell bell{io};
  boost::asio::ip::tcp::acceptor acceptor{io};
  boost::asio::thread_pool workers{2};  // bodies, templates, tokenizers
  std::unique_ptr<Embedder> embedder;   // made by the first request for embeddings, by the thread that runs them
  int64_t n_embedding = 0;              // requests for embeddings at work or waiting
  std::atomic<bool> embedding_ends = false;
  boost::asio::thread_pool embedding{1};
  std::set<std::shared_ptr<serve::Connection>> connections;
  uint64_t n_requests = 0;
  int64_t n_busy = 0;  // requests that were read and are not answered yet
  bool draining = false;
  std::string step_failure;  // of the thread that steps; empty: none
  std::atomic<bool> has_failed = false;
};

namespace serve {

int status_of(const Error& error) noexcept;
// Of what is the server's own fault only its log has the words (Exchange::fault): they may name files of the machine.
api::ApiError own_fault(std::string_view what, Exchange& e);
api::ApiError to_api_error(const Error& error, Exchange& e);

}  // namespace serve
}  // namespace assay
