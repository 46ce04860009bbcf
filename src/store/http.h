// One GET at a time over http and https. Redirects are followed here, hop by hop: never from https to http, and a token
// goes to its own host alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::store {

// What matters of a reply's head. Header names in any case; the last of several counts.
struct HttpHead {
  int status = 0;
  int64_t length = -1;                         // Content-Length
  int64_t range_begin = -1, range_total = -1;  // Content-Range
  std::string tag;                             // ETag
  std::string date;                            // Last-Modified
  std::string type, encoding, location, retry_after, link;

  // A line of the head; what it does not know or cannot read is left out.
  void add_line(std::string_view line);
  // The server's name for this state of the file: the tag, else the date.
  const std::string& version() const noexcept { return tag.empty() ? date : tag; }
};

// Seconds that a Retry-After asks for, as a number or a date; -1 where it is neither. now: seconds since 1970.
int64_t retry_after_seconds(const std::string& value, int64_t now);
// The address behind rel="next" of a Link header; empty where there is none.
std::string next_link(std::string_view value);

struct HttpSettings {
  std::string token, token_url;  // the token goes to requests with the scheme, host and port of token_url
  std::string http_proxy, https_proxy, all_proxy, no_proxy;
  std::string ca_file;  // certificates to trust; empty: the system's
  double timeout_s = 30;
  std::function<bool()> cancelled;
};

struct HttpRequest {
  std::string url;
  int64_t begin = 0;     // from this byte on
  std::string if_range;  // only if the file has this tag still
  int64_t end = -1;      // up to this byte, without it; -1: to the file's end
};

enum class HttpEnd {
  complete,
  stopped,  // by on_head
  cancelled,
  cut,        // also by silence; the problem says which
  refused,    // no connection, or no such host
  forbidden,  // a redirect that is not followed, a certificate that does not hold, no http: trying again does not help
};

struct HttpResult {
  HttpEnd end = HttpEnd::complete;
  std::string problem;
};

// Takes bytes away, or leaves them: the caller empties what is left, and uses its memory again.
using TakeBytes = std::function<void(std::vector<std::byte>&)>;

class Http {
 public:
  explicit Http(HttpSettings settings);  // Error(unsupported) in a build without libcurl
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // on_head gets the head of the reply that is no redirect; false ends the request. on_body gets the bytes behind it,
  // joined to kToldAtOnce, each part up to a multiple of that in the file, or less where more is slow to come. What
  // they throw comes through.
  HttpResult get(const HttpRequest& request, const std::function<bool(const HttpHead&)>& on_head,
                 const TakeBytes& on_body);
  // What is written as one gets memory in one piece. The system keeps pieces of this size at hand; larger ones a
  // virtual machine has often given back to its host, which takes three times the processor's time of the whole to
  // undo.
  static constexpr size_t kToldAtOnce = size_t{64} << 10;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::store
