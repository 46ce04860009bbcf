// HTTP by libcurl, which follows no redirect and reads no environment here.
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "assay/pull.h"
#include "base/shown.h"
#include "store/curl_library.h"
#include "store/http.h"
#include "store/names.h"

namespace assay::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRedirectsMax = 10;
constexpr size_t kHeadBytesMax = 256 << 10;
constexpr long kBufferBytes = 512 << 10;
constexpr auto kHeldLongest = std::chrono::milliseconds(100);  // of a body that comes slowly

// A sender that is fast wakes its reader for each 64 KiB, which costs both more than the bytes do where they share a
// machine. Here the system wakes the reader of such a flow when half a megabyte has come together; it goes back to any
// byte where the flow slows down, where it stands still (libcurl looks about once a second), and before the end. Only
// for plain http, whose bytes are the socket's, and where a second is no silence yet.
constexpr double kGatheringTimeoutMin = 2;
class Gathering {
 public:
  // Before each wait. n_total: 0 where nobody knows.
  void before_wait(const std::vector<curl_socket_t>& sockets, curl_off_t n_total, curl_off_t n_received) {
    const auto now = Clock::now();
    if (n_received - begin_bytes_ >= kMeasuredBytes || now - begin_ > kMeasuredTime) {
      is_fast_ = n_received - begin_bytes_ >= kMeasuredBytes && now - begin_ < kMeasuredTime;
      begin_ = now;
      begin_bytes_ = n_received;
    }
    set(sockets, is_fast_ && n_total - n_received > 2 * kTogether ? kTogether : 1);
  }
  void end(const std::vector<curl_socket_t>& sockets) { set(sockets, 1); }  // the next request may use the socket

 private:
  void set(const std::vector<curl_socket_t>& sockets, int n_bytes) {
    if (n_bytes == std::exchange(set_, n_bytes)) return;
    if (n_bytes > 1 && sockets.size() != 1) set_ = 1;  // which of them it is that brings the bytes is not known
    for (const curl_socket_t socket : sockets) ::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &set_, sizeof set_);
  }

  static constexpr int kTogether = 512 << 10;
  static constexpr curl_off_t kMeasuredBytes = 4 << 20;
  static constexpr auto kMeasuredTime = std::chrono::milliseconds(40);  // so 100 MB/s are fast

  Clock::time_point begin_ = Clock::now();
  curl_off_t begin_bytes_ = 0;
  bool is_fast_ = false;
  int set_ = 1;
};

int note_opened(void* context, curl_socket_t socket, curlsocktype) {
  static_cast<std::vector<curl_socket_t>*>(context)->push_back(socket);
  return CURL_SOCKOPT_OK;
}

int close_noted(void* context, curl_socket_t socket) {
  std::erase(*static_cast<std::vector<curl_socket_t>*>(context), socket);
  return ::close(socket);
}

struct Url {
  const CurlLibrary& curl;
  CURLU* handle = curl.url();
  explicit Url(const CurlLibrary& library) : curl(library) {}
  ~Url() { curl.url_cleanup(handle); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  bool set(const std::string& text) {
    return curl.url_set(handle, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  }  // relative to what it was
  std::string part(CURLUPart which) const {
    char* text = nullptr;
    if (curl.url_get(handle, which, &text, which == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) != CURLUE_OK) return {};
    std::string result(text);
    curl.free(text);
    return result;
  }
  std::string origin() const {
    return lower(fmt::format("{}://{}:{}", part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)));
  }
};

struct HeaderList {
  const CurlLibrary& curl;
  curl_slist* first = nullptr;
  explicit HeaderList(const CurlLibrary& library) : curl(library) {}
  ~HeaderList() { curl.slist_free_all(first); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) {
    curl_slist* longer = curl.slist_append(first, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    first = longer;
  }
};

// One hop: what the callbacks of libcurl work on. Exceptions do not cross it; they wait here.
struct Hop {
  const std::vector<curl_socket_t>& sockets;
  const HttpSettings& settings;
  const std::function<bool(const HttpHead&)>& on_head;
  const TakeBytes& on_body;
  bool may_gather;
  HttpHead head{};
  size_t head_bytes = 0;
  bool is_told = false, is_stopped = false, is_cancelled = false, is_silent = false;
  curl_off_t n_seen = 0;
  Clock::time_point last_byte = Clock::now();
  std::exception_ptr thrown{};
  Gathering gathering{};
  std::vector<std::byte> body{};  // that came and is not told yet: libcurl tells it in parts of 16 KiB
  int64_t position = 0;           // in the file, of what comes next
  Clock::time_point body_since{};

  bool is_redirect() const { return head.status >= 300 && head.status < 400 && !head.location.empty(); }
  // Tells the head once it is whole; false where the request ends here.
  bool tell_head() {
    if (is_told || is_redirect()) return !is_stopped;
    is_told = true;
    position = head.status == 206 ? std::max<int64_t>(head.range_begin, 0) : 0;
    is_stopped = !on_head(head);
    return !is_stopped;
  }
  void tell_body() {
    if (!body.empty()) on_body(body);
    body.clear();
  }
  void take(std::span<const std::byte> bytes) {
    constexpr auto kBlock = static_cast<int64_t>(Http::kToldAtOnce);
    while (!bytes.empty()) {
      if (body.empty()) body_since = last_byte;
      body.reserve(Http::kToldAtOnce);  // the memory may be another's by now
      const auto n = std::min(bytes.size(), static_cast<size_t>(kBlock - position % kBlock));
      body.insert(body.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      position += static_cast<int64_t>(n);
      bytes = bytes.subspan(n);
      if (position % kBlock == 0) tell_body();
    }
  }
};

template <class Work>
bool guarded(Hop& hop, Work work) {
  try {
    return work();
  } catch (...) {
    hop.thrown = std::current_exception();
    return false;
  }
}

size_t take_header(char* data, size_t, size_t n, void* context) {
  Hop& hop = *static_cast<Hop*>(context);
  const bool goes_on = guarded(hop, [&] {
    hop.last_byte = Clock::now();
    hop.head_bytes += n;
    if (hop.head_bytes > kHeadBytesMax)
      throw NetworkError(
          fmt::format("the server's reply has a head of more than {} bytes, which is the limit", kHeadBytesMax));
    const std::string_view line(data, n);
    if (line.starts_with("HTTP/")) {
      hop.head = {};
      const size_t space = line.find(' ');
      hop.head.status = space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
    } else if (line == "\r\n" || line == "\n") {
      return hop.head.status < 200 || hop.tell_head();
    } else {
      hop.head.add_line(line);
    }
    return true;
  });
  return goes_on ? n : 0;
}

size_t take_body(char* data, size_t, size_t n, void* context) {
  Hop& hop = *static_cast<Hop*>(context);
  const bool goes_on = guarded(hop, [&] {
    hop.last_byte = Clock::now();
    if (hop.is_redirect()) return true;
    hop.take(std::as_bytes(std::span(data, n)));
    return true;
  });
  return goes_on ? n : 0;
}

// Called before each wait for more.
int watch(void* context, curl_off_t n_total, curl_off_t n_received, curl_off_t, curl_off_t) {
  Hop& hop = *static_cast<Hop*>(context);
  const auto tell = [&] { return hop.tell_body(), true; };
  if (!hop.body.empty() && Clock::now() - hop.body_since > kHeldLongest && !guarded(hop, tell)) return 1;
  if (hop.settings.cancelled && hop.settings.cancelled()) {
    hop.is_cancelled = true;
    return 1;
  }
  if (hop.may_gather) hop.gathering.before_wait(hop.sockets, n_total, n_received);
  if (n_received != hop.n_seen) {
    hop.n_seen = n_received;
    hop.last_byte = Clock::now();
  }
  hop.is_silent = std::chrono::duration<double>(Clock::now() - hop.last_byte).count() > hop.settings.timeout_s;
  return hop.is_silent ? 1 : 0;
}

HttpEnd end_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return HttpEnd::refused;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM: return HttpEnd::forbidden;
    default: return HttpEnd::cut;
  }
}

}  // namespace

struct Http::State {
  HttpSettings settings;
  CurlLibrary curl;
  std::vector<curl_socket_t> sockets;  // that are open; before the handle, which closes them
  CURL* handle = curl.easy_init();
  ~State() { curl.easy_cleanup(handle); }

  const std::string& proxy_of(const std::string& scheme) const {
    const std::string& own = scheme == "https" ? settings.https_proxy : settings.http_proxy;
    return own.empty() ? settings.all_proxy : own;
  }
  void add_headers(HeaderList& headers, const HttpRequest& request, const Url& url) const;
  CURLcode perform(const std::string& text, const Url& url, const HeaderList& headers, Hop& hop, char* problem);
};

CURLcode Http::State::perform(const std::string& text, const Url& url, const HeaderList& headers, Hop& hop,
                              char* problem) {
  curl.easy_reset(handle);
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(handle, option, value); };
  set(CURLOPT_URL, text.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_HTTPHEADER, headers.first);
  set(CURLOPT_USERAGENT, "assay");
  set(CURLOPT_PROXY, proxy_of(url.part(CURLUPART_SCHEME)).c_str());  // "": none, whatever the environment says
  set(CURLOPT_NOPROXY, settings.no_proxy.c_str());
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // of a proxy
  set(CURLOPT_NOSIGNAL, 1L);
  if (!settings.ca_file.empty()) set(CURLOPT_CAINFO, settings.ca_file.c_str());
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings.timeout_s * 1000));
  set(CURLOPT_ERRORBUFFER, problem);
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&hop));
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&hop));
  set(CURLOPT_SOCKOPTFUNCTION, note_opened);
  set(CURLOPT_SOCKOPTDATA, static_cast<void*>(&sockets));
  set(CURLOPT_CLOSESOCKETFUNCTION, close_noted);
  set(CURLOPT_CLOSESOCKETDATA, static_cast<void*>(&sockets));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, watch);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&hop));
  const CURLcode code = curl.easy_perform(handle);
  hop.gathering.end(sockets);
  return code;
}

void Http::State::add_headers(HeaderList& headers, const HttpRequest& request, const Url& url) const {
  const bool is_part = request.begin > 0 || request.end >= 0;
  const std::string last = request.end >= 0 ? std::to_string(request.end - 1) : "";
  if (is_part) headers.add(fmt::format("Range: bytes={}-{}", request.begin, last));
  if (is_part && !request.if_range.empty()) headers.add(fmt::format("If-Range: {}", request.if_range));
  Url token_url(curl);
  if (!settings.token.empty() && token_url.set(settings.token_url) && token_url.origin() == url.origin())
    headers.add(fmt::format("Authorization: Bearer {}", settings.token));
}

Http::Http(HttpSettings settings) : state_(std::make_unique<State>()) {
  if (state_->handle == nullptr) throw std::bad_alloc();
  state_->settings = std::move(settings);
}
Http::~Http() = default;

HttpResult Http::get(const HttpRequest& request, const std::function<bool(const HttpHead&)>& on_head,
                     const TakeBytes& on_body) {
  Url url(state_->curl);
  if (!url.set(request.url)) return {HttpEnd::forbidden, fmt::format("{} is no address", base::shown(request.url))};
  for (int n_redirects = 0; n_redirects <= kRedirectsMax; ++n_redirects) {
    const std::string scheme = url.part(CURLUPART_SCHEME);
    if (scheme != "http" && scheme != "https")
      return {HttpEnd::forbidden, fmt::format("{} is neither http nor https", base::shown(scheme))};
    HeaderList headers(state_->curl);
    state_->add_headers(headers, request, url);
    char problem[CURL_ERROR_SIZE] = "";
    const bool may_gather = scheme == "http" && state_->settings.timeout_s >= kGatheringTimeoutMin;
    Hop hop{state_->sockets, state_->settings, on_head, on_body, may_gather};
    const CURLcode code = state_->perform(url.part(CURLUPART_URL), url, headers, hop, problem);
    if (!hop.thrown) hop.tell_body();  // also of a reply that was cut
    if (hop.thrown) std::rethrow_exception(hop.thrown);
    if (hop.is_cancelled) return {HttpEnd::cancelled, ""};
    if (hop.is_stopped) return {HttpEnd::stopped, ""};
    if (hop.is_silent) return {HttpEnd::cut, fmt::format("no byte came for {} s", state_->settings.timeout_s)};
    if (code != CURLE_OK) return {end_of(code), problem[0] != '\0' ? problem : state_->curl.easy_strerror(code)};
    if (!hop.is_redirect()) return {HttpEnd::complete, ""};
    if (!url.set(hop.head.location))
      return {HttpEnd::forbidden,
              fmt::format("it redirects to {}, which is no address", base::shown(hop.head.location))};
    if (scheme == "https" && url.part(CURLUPART_SCHEME) == "http")
      return {HttpEnd::forbidden, fmt::format("it redirects from https to {}, which is not followed",
                                              base::shown(url.part(CURLUPART_URL)))};
  }
  return {HttpEnd::forbidden, fmt::format("it redirects more than {} times, which is the limit", kRedirectsMax)};
}

}  // namespace assay::store
