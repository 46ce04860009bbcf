// One HTTP/1.1 request out of a stream of bytes. What RFC 9112 lets a server refuse is refused, so that nobody between
// client and server can have read the same bytes as other requests: one length or chunks, never both; no folded lines,
// no extensions of chunks, no trailers.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/server.h"

namespace assay::serve {

// A request that is answered with an error and the end of the connection, since where the next one begins is not known.
struct HttpError : std::runtime_error {
  HttpError(int http_status, const std::string& what) : std::runtime_error(what), status(http_status) {}
  int status;
};

struct HttpRequest {
  std::string method, target;
  bool is_http_1_0 = false;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  const std::string* header(std::string_view name) const noexcept;  // in lower case; null: there is none
  std::string_view path() const noexcept;                           // the target without its query
  bool keeps_alive() const noexcept;
};

class RequestReader {
 public:
  explicit RequestReader(const RequestLimits& limits = {}) : limits_(limits) {}

  // Takes what belongs to this request and returns how many bytes that were. HttpError: 400, 413, 414, 431.
  size_t feed(std::string_view bytes);
  bool begun() const noexcept { return !head_.empty() || has_head_; }
  bool has_head() const noexcept { return has_head_; }  // method, target and headers are there
  bool done() const noexcept { return has_head_ && state_ == State::done; }
  bool expects_continue() const noexcept { return expects_continue_; }
  const HttpRequest& request() const noexcept { return request_; }
  HttpRequest& request() noexcept { return request_; }

 private:
  enum class State { body, chunk_size, chunk_data, chunk_end, last_line, done };

  size_t feed_head(std::string_view bytes);
  void read_head(std::string_view head);
  void read_request_line(std::string_view line);
  void read_header(std::string_view line);
  void read_framing();
  size_t feed_body(std::string_view bytes);
  size_t feed_line(std::string_view bytes);
  void add_body(std::string_view bytes);

  RequestLimits limits_;
  HttpRequest request_;
  std::string head_, line_;
  bool has_head_ = false, expects_continue_ = false;
  State state_ = State::done;
  size_t left_ = 0;  // bytes of the body or of a chunk
};

}  // namespace assay::serve
