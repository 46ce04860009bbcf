// Sockets: connections, their deadlines, drain. One thread does all of it; another one steps the scheduler.
#include "assay/server.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <thread>

#include "api/json_text.h"
#include "serve/server_state.h"
#include "serve/tls.h"
#include "serve/workers.h"

namespace assay {

namespace asio = boost::asio;
using asio::ip::tcp;
using serve::Clock;
using serve::Connection;
using serve::Exchange;
using serve::Response;

namespace {

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

constexpr auto kFarewell = std::chrono::seconds(1);
constexpr auto kWatch = std::chrono::milliseconds(100);
constexpr size_t kReadBytes = 16 << 10;

api::ApiOptions api_options(const Model& model, const ServerOptions& o, const Context& context) {
  api::ApiOptions a;
  a.names = o.names;
  if (a.names.empty()) a.names.push_back(std::filesystem::path(model.path()).stem().string());
  a.defaults = o.defaults;
  a.seed = o.seed;
  a.chat_template = o.chat_template;
  a.template_variables = o.template_variables;
  a.parts_reasoning = o.parts_reasoning;
  a.n_reasoning_max = o.n_reasoning_max;
  a.lenient = o.lenient;
  a.limits = o.limits;
  a.n_ctx = context.n_ctx();
  a.fingerprint = api::fingerprint(context, a);
  return a;
}

// An encoder writes nothing: its scheduler is never asked for anything.
SchedulerOptions scheduler_options(const Model& model, const ServerOptions& options) {
  SchedulerOptions scheduler = options.scheduler;
  scheduler.context.embeddings = !model.has_logits();
  return scheduler;
}

bool is_sane_id(const std::string& id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

class Busy {
 public:
  explicit Busy(int64_t& n) : n_(n) { ++n_; }
  ~Busy() { --n_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  int64_t& n_;
};

}  // namespace

Server::State::State(std::shared_ptr<const Model> loaded, const ServerOptions& asked)
    : options(asked), model(std::move(loaded)), scheduler(model, scheduler_options(*model, options)),
      api(model, api_options(*model, options, scheduler.context())), access(options) {
  if (model->tokenizer() == nullptr)
    throw Error(Errc::bad_request, "the model was loaded without its tokenizer, which a server needs");
  if (!options.certificate_file.empty()) tls = serve::tls_context(options.certificate_file, options.key_file);
  listen();
}

void Server::State::listen() {
  boost::system::error_code ec;
  const asio::ip::address address =
      asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, ec);
  if (ec)
    throw Error(Errc::bad_request,
                fmt::format("--host {}: needs an address such as 127.0.0.1 or 0.0.0.0", options.host));
  if (!address.is_loopback() && options.keys.empty() && !options.without_key) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "--host {} is open to other machines: needs keys (--api-key-file), or --no-key where anybody may ask",
            options.host));
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) throw Error(Errc::io, fmt::format("{} port {}: {}", options.host, options.port, ec.message()));
}

asio::awaitable<void> Server::State::accept() {
  while (true) {
    boost::system::error_code ec;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted) co_return;
    if (ec == asio::error::no_descriptors && make_room_for_connections()) continue;
    if (ec) {  // out of descriptors: wait until some are free
      asio::steady_timer pause(io, kWatch);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    if (static_cast<int64_t>(connections.size()) >= options.n_connections_max) {
      turn_away(socket);
      continue;
    }
    socket.set_option(tcp::no_delay(true), ec);
    const auto c = std::make_shared<Connection>(std::move(socket));
    const tcp::endpoint local = c->socket.local_endpoint(ec);
    if (!ec)
      c->local =
          local.address().is_v6() ? fmt::format("[{}]", local.address().to_string()) : local.address().to_string();
    connections.insert(c);
    asio::co_spawn(io, serve_connection(c),
                   [this, c](const std::exception_ptr&) {  // a fault in one ends it, and no other
                     boost::system::error_code ignored;
                     c->socket.close(ignored);
                     connections.erase(c);
                   });
  }
}

// Closed at once, with a word where that costs no wait: a new connection has room for it.
void Server::State::turn_away(tcp::socket& socket) {
  ++metrics.refused["connections"];
  if (tls != nullptr) return;  // it could not be read
  serve::Response response = serve::error_response(api::ApiError(
      503, fmt::format("there are {} connections: --max-connections raises it", options.n_connections_max), "",
      "connections"));
  const std::string text = serve::head_text(response, true, false) + response.body;
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// Where descriptors are short, who has waited the longest without a request goes. False: nobody waits so.
bool Server::State::make_room_for_connections() {
  std::shared_ptr<Connection> oldest;
  for (const auto& c : connections) {
    if (c->is_idle && (oldest == nullptr || c->deadline < oldest->deadline)) oldest = c;
  }
  if (oldest == nullptr) return false;
  oldest->is_idle = false;
  boost::system::error_code ignored;
  oldest->socket.close(ignored);
  return true;
}

// Deadlines, and the end of it all.
asio::awaitable<void> Server::State::watch(std::function<bool()> ends) {
  Clock::time_point drain_end = Clock::time_point::max();
  while (true) {
    boost::system::error_code ec;
    asio::steady_timer timer(io, kWatch);
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    const auto now = Clock::now();
    for (const auto& c : connections) {
      if (now > c->deadline) c->socket.close(ec);
    }
    if (!draining && (ends() || has_failed)) {
      draining = true;
      drain_end = now + seconds(has_failed ? 0 : options.drain_s_max);
    }
    if (draining && (n_busy == 0 || now > drain_end + std::chrono::seconds(2))) break;
    if (draining && now > drain_end) scheduler.cancel_all(), embedding_ends = true;
  }
  io.stop();
}

asio::awaitable<bool> Server::State::write(Connection& c, std::string text) {
  const auto begun = Clock::now();
  boost::system::error_code ec;
  for (size_t n_taken = 0; n_taken < text.size() && !ec;) {
    // A byte now and then does not put the end off: as with bodies, more time comes with every so many bytes.
    c.deadline = begun + seconds(options.unsent_s_max + static_cast<double>(n_taken) / options.body_bytes_per_s);
    const auto rest = asio::buffer(text) + n_taken;
    size_t n = 0;
    if (c.tls) {
      n = co_await c.tls->async_write_some(rest, asio::redirect_error(asio::use_awaitable, ec));
    } else {
      n = co_await c.socket.async_write_some(rest, asio::redirect_error(asio::use_awaitable, ec));
    }
    n_taken += n;
  }
  c.deadline = Clock::time_point::max();
  co_return !ec;
}

asio::awaitable<bool> Server::State::send(Connection& c, Exchange& e, Response response) {
  e.status = response.status;
  response.headers.emplace_back("x-request-id", e.id);
  if (e.request != nullptr) {
    if (const std::string origin = access.cors_origin(*e.request); !origin.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Origin", origin);
      response.headers.emplace_back("Vary", "Origin");
    }
  }
  std::string text = serve::head_text(response, e.closes, false);
  if (e.request == nullptr || e.request->method != "HEAD") text += response.body;
  const bool open = co_await write(c, std::move(text));
  if (!open) e.closes = true;
  co_return open;
}

// One request's bytes. False: the connection is over. A request that is refused by its head leaves why in `refusal`;
// HttpError where the bytes are none.
asio::awaitable<bool> Server::State::read(Connection& c, serve::RequestReader& reader,
                                          std::optional<api::ApiError>& refusal) {
  Clock::time_point head_begun{}, body_begun{};
  double n_body = 0;
  bool has_continued = false;
  while (true) {
    const size_t n = reader.feed(c.inbox);
    if (reader.has_head()) n_body += static_cast<double>(n);
    c.inbox.erase(0, n);
    if (reader.has_head() && body_begun == Clock::time_point()) {
      body_begun = Clock::now();
      Exchange unused;
      try {
        check_access(reader.request(), unused, c.local);
      } catch (const api::ApiError& error) {
        refusal = error;
      }
      if (refusal) co_return true;
    }
    if (reader.done()) co_return true;
    if (reader.has_head() && reader.expects_continue() && !has_continued) {
      has_continued = true;
      const bool open = co_await write(c, "HTTP/1.1 100 Continue\r\n\r\n");
      if (!open) co_return false;
    }
    if (reader.begun() && head_begun == Clock::time_point()) head_begun = Clock::now();
    if (reader.has_head()) {
      c.deadline = body_begun + seconds(options.head_s_max + n_body / options.body_bytes_per_s);
    } else {
      c.deadline =
          reader.begun() ? head_begun + seconds(options.head_s_max) : Clock::now() + seconds(options.idle_s_max);
    }
    c.is_idle = !reader.begun();
    char buffer[kReadBytes];
    boost::system::error_code ec;
    size_t n_read = 0;
    if (c.tls) {
      n_read = co_await c.tls->async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, ec));
    } else {
      n_read = co_await c.socket.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, ec));
    }
    c.is_idle = false;
    if (ec) co_return false;
    c.inbox.append(buffer, n_read);
  }
}

asio::awaitable<bool> Server::State::greet(Connection& c) {
  if (tls == nullptr) co_return true;
  c.tls = std::make_unique<asio::ssl::stream<tcp::socket&>>(c.socket, *tls);
  c.deadline = Clock::now() + seconds(options.head_s_max);
  boost::system::error_code ec;
  co_await c.tls->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec;
}

// The end of a connection that came to a good one.
asio::awaitable<void> Server::State::part(Connection& c) {
  boost::system::error_code ignored;
  if (c.tls) {
    c.deadline = Clock::now() + kFarewell;
    co_await c.tls->async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  }
  c.socket.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> Server::State::serve_connection(std::shared_ptr<Connection> c) {
  bool goes_on = co_await greet(*c);
  if (!goes_on) co_return;
  while (goes_on) {
    serve::RequestReader reader(options.limits);
    Exchange e;
    e.id = fmt::format("{:016x}", ++n_requests);
    std::optional<api::ApiError> refusal;
    bool is_http = true;
    try {
      const bool open = co_await read(*c, reader, refusal);
      if (!open) co_return;
    } catch (const serve::HttpError& error) {
      refusal.emplace(error.status, error.what());
      is_http = false;
    }
    e.begun = Clock::now();
    if (reader.has_head()) {
      e.request = &reader.request();
      e.closes = !reader.request().keeps_alive();
      if (const std::string* id = reader.request().header("x-request-id"); id != nullptr && is_sane_id(*id)) e.id = *id;
    }
    // What a refused request still sends would be read as the next one.
    if (!is_http || (refusal && !reader.done())) e.closes = true;
    const Busy busy(n_busy);
    if (refusal) {
      co_await send(*c, e, serve::error_response(*refusal));
      ++metrics.refused[refusal->code.empty() ? std::to_string(refusal->status) : refusal->code];
    } else {
      co_await answer(*c, e);
    }
    note(e);
    goes_on = !e.closes;
  }
  co_await part(*c);
}

asio::awaitable<void> Server::State::answer(Connection& c, Exchange& e) {
  std::optional<api::ApiError> failure;
  try {
    check_access(*e.request, e, c.local);
    std::optional<Response> response = quick(*e.request);
    const std::string path(e.request->path().starts_with("/v1/") ? e.request->path().substr(3) : e.request->path());
    const std::string& body = e.request->body;
    if (const auto where = serve::answers_at(path); !response && where) {
      co_await complete(c, e, *where);
      co_return;
    }
    if (!response && path == "/embeddings") {
      co_await embed(c, e);
      co_return;
    }
    if (!response) {
      const std::function<std::string()> work = [this, &path, &body] {
        return path == "/tokenize"     ? api.tokenize(body)
               : path == "/detokenize" ? api.detokenize(body)
                                       : api.apply_template(body);
      };
      std::string text = co_await serve::on_workers<std::string>(workers, work);
      response = Response{200, std::move(text)};
    }
    co_await send(c, e, std::move(*response));
    co_return;
  } catch (const api::ApiError& error) {
    failure = error;
  } catch (const Error& error) {
    failure = serve::to_api_error(error, e);
  } catch (const std::bad_alloc&) {
    failure.emplace(503, "no memory for this request");
  } catch (const std::exception& error) {  // a fault of ours, which ends nobody else's request
    failure = serve::own_fault(error.what(), e);
  }
  if (e.status == 200) {  // the head of a stream is out: only the end of the connection is left to say it with
    e.closes = true;
    co_return;
  }
  Response response = serve::error_response(*failure);
  if (failure->status == 429) response.headers.emplace_back("Retry-After", std::to_string(retry_after_s()));
  ++metrics.refused[failure->code.empty() ? std::to_string(failure->status) : failure->code];
  co_await send(c, e, std::move(response));
}

void Server::State::note(const Exchange& e) {
  const double seconds = std::chrono::duration<double>(Clock::now() - e.begun).count();
  if (!e.finish.empty()) metrics.whole_request.add(seconds);
  if (!options.log) return;
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string more;
  for (const std::string& prompt : e.prompts)
    more += (more.empty() ? ",\"prompts\":[" : ",") + api::json_quoted(prompt);
  if (!more.empty()) more += "]";
  if (!e.fault.empty()) more += ",\"fault\":" + api::json_quoted(e.fault);
  options.log(fmt::format(
      R"({{"time":{:.3f},"id":{},"method":{},"path":{},"status":{},"ms":{:.1f},"key":{},"user":{},"prompt_tokens":{},"cached_tokens":{},"answer_tokens":{},"finish":{}{}}})",
      now, api::json_quoted(e.id), api::json_quoted(e.request != nullptr ? e.request->method : ""),
      api::json_quoted(e.request != nullptr ? std::string(e.request->path().substr(0, 200)) : ""), e.status,
      seconds * 1000, api::json_quoted(e.client.name), api::json_quoted(e.user), e.n_prompt, e.n_cached, e.n_answer,
      api::json_quoted(e.finish), more));
}

void Server::State::note_prompt(Exchange& e, std::span<const TokenId> prompt) const {
  e.prompts.push_back(model->tokenizer()->decode(prompt, true));
}

Server::Server(std::shared_ptr<const Model> model, const ServerOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Server::~Server() = default;

uint16_t Server::port() const noexcept {
  boost::system::error_code ignored;
  return state_->acceptor.local_endpoint(ignored).port();
}

const Context& Server::context() const noexcept { return state_->scheduler.context(); }

void Server::run(const std::function<bool()>& ends) {
  State& s = *state_;
  {
    const std::jthread steps([&s](std::stop_token stop) {
      try {
        s.scheduler.run(stop, [&s] { s.bell.ring(); });
      } catch (const std::exception& error) {
        s.step_failure = error.what();
        s.has_failed = true;
      }
    });
    asio::co_spawn(s.io, s.accept(), asio::detached);
    asio::co_spawn(s.io, s.watch(ends), asio::detached);
    s.io.run();
    boost::system::error_code ignored;
    s.acceptor.close(ignored);
    s.workers.stop();
  }
  s.workers.join();
  if (s.has_failed) throw Error(Errc::device, "the thread that steps ended: " + s.step_failure);
}

}  // namespace assay
