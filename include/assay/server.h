// A model behind HTTP, in the shapes of OpenAI's API. Answers have the bits that `assay run` gives, whoever else is
// served.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/embed.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "assay/scheduler.h"

namespace assay {

struct ApiKey {
  std::string key;
  std::string name;   // in the log; empty: the key's place in the list
  double weight = 1;  // of its turns when requests wait
};

// A line each: the key, then optional words name=N and weight=W; a word that begins with # begins a comment, within a
// word # is part of it. Error(bad_request) for anything else, and for a key that stands twice.
std::vector<ApiKey> parse_api_keys(std::string_view text);

// The most that a request may have of something. What goes beyond is refused with the flag of `assay serve` that raises
// it.
struct RequestLimits {
  int64_t n = 8;  // choices
  int64_t n_stop = 16, n_stop_bytes = 256;
  int64_t n_top_logprobs = 20, n_logit_bias = 1024, n_tools = 128;
  int64_t json_depth = 64;
  size_t head_bytes = 32 << 10;  // of the request line and all headers
  size_t n_headers = 64;
  size_t target_bytes = 8 << 10;
  size_t body_bytes = 16 << 20;
};

struct ServerOptions {
  SchedulerOptions scheduler;
  GenerateOptions defaults;        // of what a request leaves out
  std::optional<uint64_t> seed;    // of a request without one; nothing: a new one for each
  std::string chat_template;       // Jinja; empty: the model's own
  std::string template_variables;  // of the template, a JSON object: what requests leave out; empty: none
  bool parts_reasoning = true;     // what a model thinks is apart from its answer; false: one text
  int64_t n_reasoning_max = -1;    // tokens of it, then its closing mark; < 0: no limit
  std::optional<Pooling> pooling;  // of embeddings; none: what the file says
  std::vector<std::string> names;  // that the model is served under; none: its file's name
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                    // 0: any free one
  std::string certificate_file, key_file;  // PEM, of TLS: both or neither
  std::vector<ApiKey> keys;                // none: nobody needs one
  bool without_key = false;                // beyond loopback without keys is refused unless this says that it is meant
  std::vector<std::string> allowed_hosts;  // in Host and Origin, besides loopback and `host`
  std::vector<std::string> cors_origins;   // pages of these may call, e.g. "https://example.org"
  bool share_cache = false;                // requests of different keys share what the cache holds of their prompts
  bool lenient = false;                    // unknown fields are listed in x-ignored-params, not refused
  RequestLimits limits;
  int64_t n_connections_max = 1024;
  double request_s_max = 600;  // from a request's coming to its answer's end
  double drain_s_max = 30;
  double head_s_max = 10;          // for a request's headers, whatever comes of them when
  double body_bytes_per_s = 1024;  // at least, over the whole of a body, after as long as for headers
  double idle_s_max = 60;          // between requests
  double unsent_s_max =
      60;  // for a client to take what was sent to it, and a second more for each body_bytes_per_s that it took
  size_t unsent_bytes_max =
      1 << 20;  // of a stream; then its request stands aside until the client has taken half of them
  std::string version;
  bool log_prompts = false;                        // the line has the text of the prompts too
  std::function<void(std::string_view line)> log;  // a line of JSON for every request; called by the thread of run
};

class Server {  // one thread at a time
 public:
  // Makes the context and listens. Error(io) where the address is taken or none of this machine; Error as Scheduler.
  Server(std::shared_ptr<const Model> model, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const noexcept;
  const Context& context() const noexcept;
  // Serves until `ends`, polled ten times a second, says true; then refuses new work, lets answers finish for
  // drain_s_max at most, and returns.
  void run(const std::function<bool()>& ends);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace assay
