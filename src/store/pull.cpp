// Fetching: see assay/pull.h. What is wanted becomes a list of files; each is fetched by tries that go on where the
// last one ended.
#include "assay/pull.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "assay/error.h"
#include "assay/store.h"
#include "base/mapped_file.h"
#include "base/shown.h"
#include "gguf/reader.h"
#include "store/http.h"
#include "store/names.h"
#include "store/origin.h"
#include "store/partial_file.h"
#include "store/pieces.h"
#include "store/repository.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using store::Http;
using store::HttpEnd;
using store::HttpHead;
using store::HttpResult;
using store::PartialFile;

constexpr int kTriesMax = 10;              // in a row without a new byte
constexpr int kRefusedMax = 3;             // of these, where no connection came about
constexpr int kDoublingsMax = 4;           // of the wait between tries
constexpr int64_t kRetryAfterMax = 600;    // seconds
constexpr int64_t kFirstPiece = 64 << 10;  // tells how long the file is, and whether the server gives parts
constexpr size_t kListBytesMax = 16 << 20;
constexpr int kListPagesMax = 32;
constexpr std::string_view kMagic = "GGUF";

// One file of what is wanted.
struct Task {
  std::string url, file_name;
  std::string sha256;  // empty: not known
  int64_t bytes = -1;  // -1: not known
};

// Thrown through the tries where cancelled() says so.
struct Cancelled {};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

void check_options(const PullOptions& o) {
  const auto refuse = [](const std::string& text) { throw Error(Errc::bad_request, text); };
  if (!o.sha256.empty() && !store::is_sha256(store::lower(o.sha256)))
    refuse(fmt::format("--sha256 {}: needs 64 hexadecimal digits", base::shown(o.sha256)));
  if (!o.save_as.empty() && !store::is_safe_file_name(o.save_as))
    refuse(fmt::format("--as {}: needs a file's name without folders", base::shown(o.save_as)));
  const bool is_printable = std::all_of(o.token.begin(), o.token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_printable) refuse("HF_TOKEN has characters that no token has (a space or line break?)");
  if (!(o.timeout_s > 0) || !std::isfinite(o.timeout_s) || o.timeout_s > 86400)
    refuse(fmt::format("--timeout {}: needs seconds, more than 0 and up to a day (86400)", o.timeout_s));
  if (o.n_connections < 1 || o.n_connections > kConnectionsMax)
    refuse(fmt::format("--connections {}: needs 1 to {}", o.n_connections, kConnectionsMax));
  if (!(o.retry_wait_s >= 0) || o.retry_wait_s > 3600)
    refuse(fmt::format("--retry-wait {}: needs seconds, from 0 to an hour (3600)", o.retry_wait_s));
}

// The tries of one request: how many there were, how long to wait, when to give up.
class Tries {
 public:
  Tries(const PullOptions& options, std::string what) : options_(options), what_(std::move(what)) {}

  void progressed() { n_idle_ = n_refused_ = 0; }
  // After a try that failed: throws where it was the last, else waits. retry_after: seconds that the server asked for,
  // or -1.
  void again(const std::string& problem, bool is_refused, int64_t retry_after) {
    n_refused_ = is_refused ? n_refused_ + 1 : 0;
    ++n_idle_;
    if (n_refused_ >= kRefusedMax || n_idle_ >= kTriesMax)
      throw NetworkError(
          fmt::format("{}: {} ({} tries)", what_, problem, n_refused_ >= kRefusedMax ? n_refused_ : n_idle_));
    if (retry_after > kRetryAfterMax) {
      throw NetworkError(fmt::format("{}: {}; the server asks to wait {} s, the limit is {} s", what_, problem,
                                     retry_after, kRetryAfterMax));
    }
    const double doubled = options_.retry_wait_s * std::ldexp(1.0, std::min(n_idle_ - 1, kDoublingsMax));
    const double seconds = retry_after >= 0 ? static_cast<double>(retry_after) : doubled;
    if (options_.on_notice)
      options_.on_notice(fmt::format("{}: {}; trying again in {:.1f} s", what_, problem, seconds));
    wait(seconds);
  }

 private:
  void wait(double seconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      if (options_.cancelled && options_.cancelled()) throw Cancelled();
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(std::chrono::milliseconds(50),
                                                                          end - std::chrono::steady_clock::now()));
    }
  }

  const PullOptions& options_;
  std::string what_;
  int n_idle_ = 0, n_refused_ = 0;
};

bool is_transient(int status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

// What a status that is no success means to the user.
std::string reason_of(int status, bool has_token) {
  switch (status) {
    case 401:
    case 403:
      return fmt::format("the server refuses access (HTTP {}){}", status,
                         has_token ? ": the token has no right to it, or its terms are not accepted yet"
                                   : ": it may need HF_TOKEN, or a private address");
    case 404: return "there is no such file (HTTP 404)";
    case 429: return "the server has too many requests (HTTP 429)";
    default: return fmt::format("the server answers HTTP {}", status);
  }
}

class Puller {
 public:
  explicit Puller(const PullOptions& options)
      : options_(options), settings_{options.token,       options.endpoint,  options.http_proxy,
                                     options.https_proxy, options.all_proxy, options.no_proxy,
                                     options.ca_file,     options.timeout_s, options.cancelled},
        http_(settings_) {}

  PullResult run() {
    const store::Wanted wanted = store::parse_what(options_.what);
    note_.short_name = wanted.quant.empty() ? wanted.short_name : "";
    try {
      const std::vector<Task> tasks = wanted.url.empty() ? tasks_of_repository(wanted) : tasks_of_url(wanted.url);
      std::error_code problem;
      fs::create_directories(options_.folder, problem);
      if (problem) throw Error(Errc::io, fmt::format("{}: cannot be made: {}", options_.folder, problem.message()));
      for (size_t i = 0; i < tasks.size(); ++i) {
        progress_ = {tasks[i].file_name, static_cast<int>(i), static_cast<int>(tasks.size()), 0, tasks[i].bytes};
        result_.files.push_back(fetch(tasks[i]));
      }
    } catch (const Cancelled&) {
      result_.cancelled = true;
    }
    return std::move(result_);
  }

 private:
  std::vector<Task> tasks_of_repository(const store::Wanted& wanted);
  std::vector<Task> tasks_of_url(const std::string& url) const;
  void name_tasks(std::vector<Task>& tasks) const;
  std::string get_list(const std::string& url, std::string& next);
  PulledFile fetch(const Task& task);
  std::optional<PulledFile> find_existing(const Task& task, const fs::path& target);
  void fetch_bytes(const Task& task, PartialFile& partial, const store::OriginNote* existing, bool& is_same);
  HttpResult fetch_rest(const Task& task, PartialFile& partial, const store::OriginNote* existing);
  void check_room(const Task& task, int64_t total, int64_t n_there) const;
  bool can_part(const Task& task, const PartialFile& partial) const;
  bool take_head(const HttpHead& head, const Task& task, PartialFile& partial, const store::OriginNote* existing);
  void take_body(std::vector<std::byte>& bytes, const Task& task, PartialFile& partial);
  PulledFile finish(const Task& task, PartialFile& partial, const fs::path& target);
  void check_structure(const Task& task, PartialFile& partial) const;
  [[noreturn]] void drop(PartialFile& partial, const std::string& problem) const {
    partial.drop();
    throw NetworkError(problem + "; nothing of it is kept");
  }
  void say(const std::string& text) const {
    if (options_.on_notice) options_.on_notice(text);
  }

  const PullOptions& options_;
  const store::HttpSettings settings_;
  Http http_;
  PullResult result_;
  PullProgress progress_;
  store::OriginNote note_;

  // Of the try that runs.
  HttpHead head_;
  bool restarts_ = false, is_same_ = false;
  bool has_no_parts_ = false;  // the server of this file, or there is no telling whether its parts belong together
  int64_t furthest_ = 0;       // bytes that a try of this file reached
};

// --- what to fetch

std::string Puller::get_list(const std::string& url, std::string& next) {
  Tries tries(options_, url);
  for (;;) {
    std::string text;
    HttpHead head;
    const HttpResult result = http_.get(
        {url, 0, ""},
        [&](const HttpHead& h) {
          head = h;
          return h.status == 200;
        },
        [&](std::vector<std::byte>& bytes) {
          if (text.size() + bytes.size() > kListBytesMax)
            throw NetworkError(
                fmt::format("{}: the list of files has more than {} bytes, which is the limit", url, kListBytesMax));
          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        });
    if (result.end == HttpEnd::cancelled) throw Cancelled();
    if (result.end == HttpEnd::forbidden) throw NetworkError(fmt::format("{}: {}", url, result.problem));
    if (result.end == HttpEnd::complete && head.status == 200) {
      next = store::next_link(head.link);
      return text;
    }
    const bool has_status = result.end == HttpEnd::stopped || result.end == HttpEnd::complete;
    const std::string problem = has_status ? reason_of(head.status, !options_.token.empty()) : result.problem;
    if (has_status && head.status == 404)
      throw NetworkError(
          fmt::format("{}: there is no such repository, or it is private and needs HF_TOKEN (HTTP 404)", url));
    if (has_status && !is_transient(head.status)) throw NetworkError(fmt::format("{}: {}", url, problem));
    tries.again(problem, result.end == HttpEnd::refused,
                has_status ? store::retry_after_seconds(head.retry_after, std::time(nullptr)) : -1);
  }
}

std::vector<Task> Puller::tasks_of_repository(const store::Wanted& wanted) {
  std::string endpoint = options_.endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  std::string url = fmt::format("{}/api/models/{}/tree/main?recursive=true", endpoint, wanted.repository);
  std::vector<store::RepositoryFile> files;
  for (int page = 0; !url.empty(); ++page) {
    if (page == kListPagesMax)
      throw NetworkError(fmt::format("{}: its list of files has more than {} pages, which is the limit",
                                     wanted.repository, kListPagesMax));
    if (!url.starts_with(endpoint + "/"))
      throw NetworkError(
          fmt::format("{}: the next page of its files is on another server: {}", wanted.repository, base::shown(url)));
    std::string next;
    const std::vector<store::RepositoryFile> more = store::parse_tree(get_list(url, next));
    files.insert(files.end(), more.begin(), more.end());
    url = next;
  }
  const store::Choice choice = store::choose(files, wanted.quant, wanted.repository);
  if (!choice.remark.empty()) say(choice.remark);
  result_.repository = wanted.repository;
  result_.quant = choice.quant;
  std::vector<Task> tasks;
  for (const store::RepositoryFile& file : choice.parts) {
    Task task;
    task.url = fmt::format("{}/{}/resolve/main/{}", endpoint, wanted.repository, store::encode_path(file.path));
    task.file_name = file.path.substr(file.path.rfind('/') + 1);
    task.sha256 = file.sha256;
    task.bytes = file.bytes;
    tasks.push_back(std::move(task));
  }
  name_tasks(tasks);
  return tasks;
}

std::vector<Task> Puller::tasks_of_url(const std::string& url) const {
  std::vector<Task> tasks;
  const std::string file_name = store::file_name_of(url);
  const auto part = store::part_name(file_name);
  for (int64_t number = 1; number <= (part ? part->count : 1); ++number) {
    Task task;
    task.file_name = part ? store::part_file(part->stem, number, part->count) : file_name;
    task.url = part ? store::with_file_name(url, task.file_name) : url;
    tasks.push_back(std::move(task));
    if (number > 1024)
      throw Error(Errc::bad_request, fmt::format("{}: says that it has {} parts; the limit is 1024", url, part->count));
  }
  name_tasks(tasks);
  return tasks;
}

void Puller::name_tasks(std::vector<Task>& tasks) const {
  if (!options_.sha256.empty()) {
    if (tasks.size() > 1)
      throw Error(Errc::bad_request,
                  fmt::format("--sha256 is that of one file, but {} has {} parts", options_.what, tasks.size()));
    tasks.front().sha256 = store::lower(options_.sha256);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!options_.save_as.empty())
      tasks[i].file_name = store::part_file(store::stem_of(options_.save_as), static_cast<int64_t>(i) + 1,
                                            static_cast<int64_t>(tasks.size()));
    if (!store::is_safe_file_name(tasks[i].file_name) || !store::is_gguf_name(tasks[i].file_name))
      throw Error(Errc::bad_request,
                  fmt::format("{}: its last part, {}, is no name of a GGUF file: --as NAME gives it one", tasks[i].url,
                              base::shown(tasks[i].file_name)));
  }
}

// --- one file

PulledFile Puller::fetch(const Task& task) {
  const fs::path target = fs::path(options_.folder) / task.file_name;
  bool is_told = false;
  PartialFile partial(target, [&] {
    if (!std::exchange(is_told, true)) say(fmt::format("{}: another pull is fetching it; waiting", task.file_name));
    return !options_.cancelled || !options_.cancelled();
  });
  if (!partial.is_ours()) throw Cancelled();
  const bool is_empty = partial.bytes() == 0;
  try {
    if (auto existing = find_existing(task, target)) {
      partial.drop();
      return *existing;
    }
  } catch (...) {
    if (is_empty) partial.drop();
    throw;
  }
  const auto note = store::read_origin(target);
  const bool may_be_same =
      task.sha256.empty() && note && note->origin.url == task.url && !note->origin.server_tag.empty();
  bool is_same = false;
  try {
    fetch_bytes(task, partial, may_be_same ? &*note : nullptr, is_same);
  } catch (...) {
    if (partial.bytes() == 0) partial.drop();
    throw;
  }
  if (is_same) {
    partial.drop();
    return {target.string(), note->origin.sha256, task.url, static_cast<int64_t>(fs::file_size(target)), true};
  }
  return finish(task, partial, target);
}

// A file of that name that is right. Error(bad_request) where it is another one.
std::optional<PulledFile> Puller::find_existing(const Task& task, const fs::path& target) {
  std::error_code unknown;
  if (!fs::exists(fs::symlink_status(target, unknown))) return std::nullopt;
  const auto note = store::read_origin(target);
  const bool is_from_there = note && note->origin.url == task.url;
  if (task.sha256.empty()) {
    if (is_from_there) return std::nullopt;  // the server says whether it has changed
    throw Error(
        Errc::bad_request,
        fmt::format("{}: is there already{}; --as NAME gives this one another name, `assay rm` removes the other",
                    target.string(), note ? ", from " + note->origin.url : ", from elsewhere"));
  }
  const std::string found =
      note && !note->origin.sha256.empty() ? note->origin.sha256 : sha256_of_file(target.string());
  if (found == task.sha256) {
    if (!note) {
      store::OriginNote fresh = note_;
      fresh.origin = {found, task.url, result_.repository, result_.quant, utc_now(), ""};
      store::write_origin(target, target, fresh);
    }
    return PulledFile{target.string(), found, task.url, static_cast<int64_t>(fs::file_size(target)), true};
  }
  if (is_from_there) {
    say(fmt::format("{}: the server has another one by now; fetching it", task.file_name));
    return std::nullopt;
  }
  throw Error(Errc::bad_request, fmt::format("{}: is there already, with SHA-256 {}; what was asked for has {}. --as "
                                             "NAME gives this one another name, `assay rm` removes the other",
                                             target.string(), found, task.sha256));
}

void Puller::fetch_bytes(const Task& task, PartialFile& partial, const store::OriginNote* existing, bool& is_same) {
  const PartialFile::Source& source = partial.source();
  const bool is_checkable = !task.sha256.empty() || (!source.version.empty() && source.boot == store::boot_id());
  if (partial.bytes() > 0 && (source.url != task.url || source.sha256 != task.sha256 || !is_checkable))
    partial.restart();
  furthest_ = partial.bytes();
  has_no_parts_ = options_.n_connections == 1;
  if (furthest_ > 0) say(fmt::format("{}: going on after {} bytes", task.file_name, furthest_));
  Tries tries(options_, task.file_name);
  for (;;) {
    if (partial.bytes() > 0 && partial.bytes() == partial.source().total_bytes) return;
    if (partial.source().total_bytes < 0) partial.restart();  // of an unknown length there is no rest to ask for
    restarts_ = is_same_ = false;
    head_ = {};
    const int64_t before = furthest_;
    const HttpResult result = fetch_rest(task, partial, existing);
    furthest_ = std::max(furthest_, partial.bytes());
    if (result.end == HttpEnd::cancelled) throw Cancelled();
    if (result.end == HttpEnd::forbidden) throw NetworkError(fmt::format("{}: {}", task.url, result.problem));
    if (is_same_) {
      is_same = true;
      return;
    }
    if (furthest_ > before) tries.progressed();
    const bool is_success = head_.status == 200 || head_.status == 206;
    const int64_t total = partial.source().total_bytes;
    if (result.end == HttpEnd::complete && is_success && (total < 0 || partial.bytes() == total)) return;
    std::string problem = result.problem;
    if (restarts_) {
      problem = "what the server has is not what was begun; beginning anew";
    } else if (!is_success && head_.status != 0) {
      problem = reason_of(head_.status, !options_.token.empty());
    } else if (problem.empty()) {
      problem = fmt::format("it ended after {} of {} bytes", partial.bytes(), total);
    }
    tries.again(problem, result.end == HttpEnd::refused,
                store::retry_after_seconds(head_.retry_after, std::time(nullptr)));
  }
}

// Whether pieces that several connections bring are of one file.
bool Puller::can_part(const Task& task, const PartialFile& partial) const {
  return !has_no_parts_ && partial.source().total_bytes > 0 &&
         (!task.sha256.empty() || !partial.source().version.empty());
}

// One try: over one connection, or, once a first piece has told how long the file is, over several.
HttpResult Puller::fetch_rest(const Task& task, PartialFile& partial, const store::OriginNote* existing) {
  const auto& version = partial.source().version;
  const auto body = [&](std::vector<std::byte>& bytes) { take_body(bytes, task, partial); };
  if (partial.bytes() == 0 || !can_part(task, partial)) {
    const int64_t end = has_no_parts_ || partial.bytes() > 0 ? -1 : kFirstPiece;
    const HttpResult result = http_.get(
        {task.url, partial.bytes(), version.starts_with('"') && partial.bytes() > 0 ? version : "", end},
        [&](const HttpHead& head) { return take_head(head, task, partial, existing); }, body);
    const int64_t total = partial.source().total_bytes;
    if (result.end != HttpEnd::complete || head_.status != 206 || partial.bytes() >= total) return result;
    if (!can_part(task, partial)) {
      if (!std::exchange(has_no_parts_, true))
        say(fmt::format("{}: neither digest nor version is known, so one connection fetches it", task.file_name));
      return fetch_rest(task, partial, existing);
    }
  }
  check_room(task, partial.source().total_bytes, partial.bytes());
  const store::PiecesRequest request{task.url, version, partial.bytes(), partial.source().total_bytes,
                                     options_.n_connections};
  store::PiecesEnd end = store::fetch_pieces(request, settings_, body);
  head_ = std::move(end.head);
  if (end.end == HttpEnd::complete) {
    head_.status = 206;
  } else if (end.is_another || head_.status == 416) {
    has_no_parts_ = head_.status == 200 && head_.version() == version;  // the same file, which the server gives whole
    partial.restart();
    restarts_ = true;
  } else if (head_.status == 206) {
    has_no_parts_ = true;  // parts that nobody asked for
  } else if (end.end == HttpEnd::stopped && !is_transient(head_.status)) {
    throw NetworkError(fmt::format("{}: {}", task.url, reason_of(head_.status, !options_.token.empty())));
  }
  return {end.end, end.problem};
}

// total: -1 where nobody knows.
void Puller::check_room(const Task& task, int64_t total, int64_t n_there) const {
  const int64_t left = total - n_there, room = store::free_bytes(options_.folder);
  if (total >= 0 && left > room) {
    throw Error(Errc::io, fmt::format("{}: needs {} bytes more in {}, which has room for {}", task.file_name, left,
                                      options_.folder, room));
  }
}

// Whether the body is wanted; where it is, `partial` is where it begins.
bool Puller::take_head(const HttpHead& head, const Task& task, PartialFile& partial,
                       const store::OriginNote* existing) {
  head_ = head;
  const auto restart = [&] {
    partial.restart();
    restarts_ = true;
    return false;
  };
  if (head.status == 416) {
    has_no_parts_ = has_no_parts_ || partial.bytes() == 0;  // an empty file has none
    return restart();
  }
  if (head.status != 200 && head.status != 206) {
    if (is_transient(head.status)) return false;
    throw NetworkError(fmt::format("{}: {}", task.url, reason_of(head.status, !options_.token.empty())));
  }
  if (!head.encoding.empty() && head.encoding != "identity")
    throw NetworkError(
        fmt::format("{}: the server sends it as {}, which was not asked for", task.url, base::shown(head.encoding)));
  const int64_t total = head.status == 206 ? head.range_total : head.length;
  const bool is_first_piece = head.status == 206 && partial.bytes() == 0 && head.range_begin == 0 && total >= 0;
  if (head.status == 206 && !is_first_piece) {
    const PartialFile::Source& source = partial.source();
    const bool is_changed = !source.version.empty() && !head.version().empty() && source.version != head.version();
    has_no_parts_ = has_no_parts_ || partial.bytes() == 0;
    if (partial.bytes() == 0 || head.range_begin != partial.bytes() || total != source.total_bytes || is_changed)
      return restart();
  } else {
    if (existing != nullptr && head.version() == existing->origin.server_tag && total >= 0) {
      std::error_code unknown;
      is_same_ = static_cast<uint64_t>(total) == fs::file_size(fs::path(options_.folder) / task.file_name, unknown);
      if (is_same_) return false;
    }
    if (partial.bytes() > 0) partial.restart();
  }
  if (task.bytes >= 0 && total >= 0 && total != task.bytes)
    throw NetworkError(
        fmt::format("{}: the server announces {} bytes; its record of the file says {}", task.url, total, task.bytes));
  check_room(task, total, partial.bytes());
  if (head.status == 200 || is_first_piece)
    partial.note({task.url, head.version(), total, task.sha256, store::boot_id()});
  progress_.total_bytes = total;
  return true;
}

void Puller::take_body(std::vector<std::byte>& bytes, const Task& task, PartialFile& partial) {
  const int64_t total = partial.source().total_bytes;
  if (total >= 0 && static_cast<int64_t>(bytes.size()) > total - partial.bytes())
    drop(partial, fmt::format("{}: the server sends more than the {} bytes it announced", task.url, total));
  const auto begin = static_cast<size_t>(partial.bytes());
  if (begin < kMagic.size()) {
    const size_t n = std::min(kMagic.size() - begin, bytes.size());
    if (std::memcmp(bytes.data(), kMagic.data() + begin, n) != 0) {
      drop(partial,
           fmt::format("{}: is no GGUF file{}; a page to log in, or an error page?", task.url,
                       head_.type.empty() ? "" : fmt::format(" (the server calls it {})", base::shown(head_.type))));
    }
  }
  result_.fetched_bytes += static_cast<int64_t>(bytes.size());
  partial.append(bytes);
  progress_.done_bytes = partial.bytes();
  if (options_.on_progress) options_.on_progress(progress_);
}

// Where nobody says what the digest should be, the file's own sizes must fit together.
void Puller::check_structure(const Task& task, PartialFile& partial) const {
  try {
    const base::MappedFile map(partial.path());
    gguf::read_contents(map.bytes(), task.file_name);
  } catch (const Error& error) {
    if (error.code != Errc::bad_file) {
      if (error.code != Errc::unsupported) throw;
      say(fmt::format("fetched, but this build cannot run it: {}", error.what()));
      return;
    }
    drop(partial, fmt::format("{}: what was fetched is no whole GGUF file: {}", task.url, error.what()));
  }
}

PulledFile Puller::finish(const Task& task, PartialFile& partial, const fs::path& target) {
  partial.sync();  // while the last of it is hashed
  const std::string digest = partial.digest();
  if (!task.sha256.empty() && digest != task.sha256)
    drop(partial,
         fmt::format("{}: what was fetched has SHA-256 {}, but it should have {}", task.url, digest, task.sha256));
  if (partial.bytes() < static_cast<int64_t>(kMagic.size())) drop(partial, fmt::format("{}: is empty", task.url));
  if (task.sha256.empty()) check_structure(task, partial);
  store::OriginNote note = note_;
  note.origin = {digest, task.url, result_.repository, result_.quant, utc_now(), partial.source().version};
  store::write_origin(partial.path(), target, note);
  const int64_t bytes = partial.bytes();
  partial.publish();
  return {target.string(), digest, task.url, bytes, false};
}

}  // namespace

std::optional<std::string> find_pulled(const ModelStores& stores, const std::string& what) {
  const store::Wanted wanted = store::parse_what(what);
  for (const StoredModel& model : stores.list().models) {
    if (model.store != StoreKind::assay || !model.problem.empty()) continue;
    const auto origin = find_origin(model);
    if (!origin) continue;
    const bool is_quant = wanted.quant.empty() || store::equal_without_case(origin->quant, wanted.quant);
    if (wanted.url.empty() ? origin->repository == wanted.repository && is_quant : origin->url == wanted.url)
      return model.path();
  }
  return std::nullopt;
}

PullResult pull(const PullOptions& options) {
  check_options(options);
  return Puller(options).run();
}

}  // namespace assay
