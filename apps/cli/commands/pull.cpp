// assay pull: a model into our store. Standard output has the file's path and nothing else.
#include "assay/pull.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "assay/utf8.h"
#include "commands.h"
#include "commands/stores.h"
#include "flags/flags.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

// [########------------]  41 %  123.4 of 300.0 MiB, 12.3 MiB/s, 14 s left
class Bar {
 public:
  ~Bar() {
    if (is_shown_) to_stderr("\r\x1b[K");
  }
  void update(const PullProgress& p) {
    const auto now = Clock::now();
    if (p.i_file != i_file_) {
      i_file_ = p.i_file;
      begin_ = now;
      begin_bytes_ = p.done_bytes;
    }
    if (!stderr_has_escapes() || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    is_shown_ = true;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double per_second = seconds > 0.5 ? static_cast<double>(p.done_bytes - begin_bytes_) / seconds : 0;
    std::string line = p.n_files > 1 ? fmt::format("part {} of {}  ", p.i_file + 1, p.n_files) : "";
    if (p.total_bytes > 0) {
      constexpr int64_t kCells = 24;
      const int64_t n_full = kCells * p.done_bytes / p.total_bytes;
      line += fmt::format("[{:#<{}}{:-<{}}] {:3} %  {} of {}", "", n_full, "", kCells - n_full,
                          100 * p.done_bytes / p.total_bytes, bytes_text(p.done_bytes), bytes_text(p.total_bytes));
    } else {
      line += bytes_text(p.done_bytes);
    }
    if (per_second > 0) line += fmt::format(", {}/s", bytes_text(static_cast<int64_t>(per_second)));
    if (per_second > 0 && p.total_bytes > 0)
      line += fmt::format(", {:.0f} s left", static_cast<double>(p.total_bytes - p.done_bytes) / per_second);
    to_stderr("\r\x1b[K" + line);
  }
  void clear() {
    if (is_shown_) to_stderr("\r\x1b[K");
    is_shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_, last_;
  int64_t begin_bytes_ = 0;
  int i_file_ = -1;
  bool is_shown_ = false;
};

PullOptions options_here() {
  PullOptions o;
  o.folder = stores_here().own_folder();
  if (const std::string endpoint = first_set({"HF_ENDPOINT"}); !endpoint.empty()) o.endpoint = endpoint;
  o.token = first_set({"HF_TOKEN"});
  o.http_proxy = first_set({"http_proxy"});  // HTTP_PROXY may be a request's header where we are run for one
  o.https_proxy = first_set({"https_proxy", "HTTPS_PROXY"});
  o.all_proxy = first_set({"all_proxy", "ALL_PROXY"});
  o.no_proxy = first_set({"no_proxy", "NO_PROXY"});
  o.ca_file = first_set({"CURL_CA_BUNDLE", "SSL_CERT_FILE"});
  o.cancelled = [] { return interrupted() != 0; };
  return o;
}

PullResult pull_with_bar(PullOptions& o) {
  catch_interrupts();
  Bar bar;
  o.on_progress = [&](const PullProgress& p) { bar.update(p); };
  o.on_notice = [&](const std::string& text) {
    bar.clear();
    notice(text);
  };
  return pull(o);
}

json::object to_json(const PullResult& result) {
  json::array files;
  for (const PulledFile& file : result.files) {
    files.push_back(json::object{{"path", file.path},
                                 {"bytes", file.bytes},
                                 {"sha256", file.sha256},
                                 {"from", file.url},
                                 {"was_there", file.was_there}});
  }
  json::object object = {
      {"path", result.files.front().path}, {"files", files}, {"fetched_bytes", result.fetched_bytes}};
  if (!result.repository.empty()) {
    object["repository"] = result.repository;
    object["quant"] = result.quant;
  }
  return object;
}

std::string known_names() {
  std::string text = "Short names:\n";
  for (const ShortName& known : short_names())
    text += fmt::format("  {:<14} {:<44} {}\n", known.name, known.repository, known.what);
  return text;
}

}  // namespace

std::string pull_model(const std::string& what) {
  PullOptions o = options_here();
  o.what = what;
  try {
    const PullResult result = pull_with_bar(o);
    if (result.cancelled) throw Interrupted{interrupted()};
    return result.files.front().path;
  } catch (const NetworkError& e) {
    const std::optional<std::string> here = find_pulled(stores_here(), what);
    if (!here) throw;
    notice(fmt::format("{}; running the one that is here, {}", e.what(), *here));
    return *here;
  }
}

int pull_command(const Arguments& arguments) {
  Flags flags("pull",
              "Fetches a model and prints its path: from an address, from Hugging Face as user/repo:QUANT (without "
              "QUANT: Q4_K_M, else the "
              "nearest), or by a short name. Interrupted, it goes on where it was when it is called again.",
              "  assay pull smollm2\n"
              "  assay pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0\n"
              "  assay run \"$(assay pull gemma3)\" -p \"Hi\"\n"
              "  assay pull https://example.org/model.gguf --sha256 5994...c0f1\n\n" +
                  known_names() +
                  "\nHF_ENDPOINT is another Hugging Face, HF_TOKEN goes to that host alone; http_proxy, https_proxy, "
                  "all_proxy and no_proxy hold.",
              Flags::Environment::read);
  PullOptions o = options_here();
  bool as_json = false;
  int64_t n_connections = 1;
  flags.positional("WHAT", o.what, "An address, user/repo:QUANT, or a short name");
  flags.value("--sha256", o.sha256, "HEX",
              "What the file must have; Hugging Face's own record says it for files from there");
  flags.value("--as", o.save_as, "NAME", "Its name here, in place of the one it has there");
  flags.value("--connections", n_connections, "N", "Fetches parts of a file over so many connections at a time")
      .between(1, kConnectionsMax);
  flags.value("--timeout", o.timeout_s, "S", "Connects again after so many seconds without a byte");
  flags.value("--retry-wait", o.retry_wait_s, "S", "Seconds before the second try; doubles up to 16 times as much");
  flags.on("--json", as_json, "Path, files, digests and bytes as one JSON object");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  o.n_connections = static_cast<int>(n_connections);
  if (o.what.empty()) throw UsageError("nothing to fetch: assay pull NAME, or an address");
  const PullResult result = pull_with_bar(o);
  if (result.cancelled) {
    notice("interrupted; `assay pull` goes on where it was");
    return exit_code_of_signal(interrupted());
  }
  Output().write(as_json ? json_without_controls(to_text(to_json(result), true)) + "\n"
                         : result.files.front().path + "\n");
  return 0;
}

}  // namespace assay::cli
