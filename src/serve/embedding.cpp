// Requests for embeddings: one at a time, on a thread of their own, beside what the scheduler does.
#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "serve/server_state.h"
#include "serve/workers.h"

namespace assay {

namespace asio = boost::asio;
using serve::Clock;
using serve::Connection;
using serve::Exchange;
using serve::Response;

namespace {

// What a request's connection and the thread that runs it share.
struct Job {
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::vector<double>> vectors;  // none: it was ended
  std::exception_ptr failure;
  std::atomic<bool> client_gone = false;
  bool done = false;  // of the thread of the sockets
};

class Counted {
 public:
  explicit Counted(int64_t& n) : n_(n) { ++n_; }
  ~Counted() { --n_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int64_t& n_;
};

// The numbers of `assay embed` with the server's flags: on the CPU, with keys and values as they are.
EmbedOptions embed_options(const ServerOptions& options, const Context& served) {
  EmbedOptions embed;
  embed.pooling = options.pooling;
  embed.context = served.options();
  embed.context.backend = Backend::cpu;
  embed.context.devices = {};
  embed.context.device_shares = {};
  embed.context.n_gpu_layers = -1;
  embed.context.split_mode = SplitMode::layer;
  embed.context.cache_k = embed.context.cache_v = KvType::f32;
  embed.context.n_outputs_max = 0;
  embed.context.n_sequences = 0;
  embed.context.n_positions_max = 0;
  embed.context.n_kept = 0;
  embed.context.gives_back_windows = false;
  return embed;
}

}  // namespace

asio::awaitable<void> Server::State::embed(Connection& c, Exchange& e) {
  const int64_t n_max = scheduler.figures().n_waiting_max;
  if (n_embedding > n_max) {
    throw api::ApiError(
        429,
        fmt::format("the queue is full: {} requests for embeddings run or wait; --max-queue raises the {}", n_embedding,
                    n_max),
        "", "queue_full");
  }
  const Counted counted(n_embedding);
  const std::string& body = e.request->body;
  const std::function<api::AskedEmbeddings()> read_body = [this, &body, &e] {
    api::AskedEmbeddings asked = api.read_embeddings(body);
    for (size_t i = 0; options.log_prompts && i < asked.texts.size(); ++i) note_prompt(e, asked.texts[i]);
    return asked;
  };
  const api::AskedEmbeddings asked = co_await serve::on_workers<api::AskedEmbeddings>(workers, read_body);
  e.user = asked.draft.user;
  const auto deadline =
      e.begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.request_s_max));
  const auto job = std::make_shared<Job>();
  const auto timer = std::make_shared<asio::steady_timer>(io);
  job->texts = asked.texts;
  // Nothing of the job stays on that thread: what was thrown there is read and freed on this one.
  asio::post(embedding, [this, job = job, timer = timer, deadline]() mutable {
    try {
      if (embedder == nullptr)
        embedder = std::make_unique<Embedder>(model, embed_options(options, scheduler.context()));
      embedder->set_cancel(
          [this, job, deadline] { return job->client_gone || embedding_ends || Clock::now() > deadline; });
      job->vectors = embedder->embed(job->texts);
    } catch (...) {
      job->failure = std::current_exception();
    }
    if (embedder != nullptr) embedder->set_cancel({});
    asio::post(io, [job = std::move(job), timer = std::move(timer)] {
      job->done = true;
      timer->cancel();
    });
  });
  c.deadline = Clock::time_point::max();
  while (!job->done) {
    boost::system::error_code cancelled;
    timer->expires_after(serve::kLookAgain);
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    if (!job->client_gone && !job->done && serve::is_gone(c)) job->client_gone = true;
  }
  if (job->failure) std::rethrow_exception(job->failure);
  if (job->vectors.empty()) {
    e.finish = job->client_gone ? "client gone" : "";
    e.closes = job->client_gone;
    if (job->client_gone) co_return;
    if (embedding_ends)
      throw api::ApiError(503, "the server ended before the embeddings were there: --drain-timeout gives it longer", "",
                          "draining");
    throw api::ApiError(
        503, fmt::format("the request took longer than {} s: --request-timeout raises it", options.request_s_max), "",
        "timeout");
  }
  e.n_prompt = asked.n_tokens();
  const std::function<std::string()> write_answer = [this, &asked, &job] {
    return api.embeddings_answer(asked, job->vectors);
  };
  std::string text = co_await serve::on_workers<std::string>(workers, write_answer);
  Response response{200, std::move(text)};
  if (!asked.ignored.empty()) response.headers.emplace_back("x-ignored-params", serve::header_list(asked.ignored));
  co_await send(c, e, std::move(response));
}

}  // namespace assay
