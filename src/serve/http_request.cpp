// See http_request.h.
#include "serve/http_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/ascii.h"

namespace assay::serve {
namespace {

bool is_token_char(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool is_control(char c) noexcept { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

constexpr size_t kMethodMax = 16;
constexpr size_t kChunkLineMax = 10;  // eight digits and the end of the line

// Of these a second one could mean another request to somebody else.
constexpr std::string_view kOnce[] = {
    "host",   "content-length", "transfer-encoding", "content-type", "content-encoding", "authorization", "x-api-key",
    "origin", "expect",         "connection",        "x-request-id"};

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const noexcept {
  const auto it = std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == name; });
  return it == headers.end() ? nullptr : &it->second;
}

std::string_view HttpRequest::path() const noexcept { return std::string_view(target).substr(0, target.find('?')); }

bool HttpRequest::keeps_alive() const noexcept {
  const std::string* connection = header("connection");
  if (is_http_1_0) return connection != nullptr && base::lower(*connection) == "keep-alive";
  return connection == nullptr || base::lower(*connection) != "close";
}

size_t RequestReader::feed(std::string_view bytes) {
  size_t n = 0;
  if (!has_head_) n = feed_head(bytes);
  while (has_head_ && state_ != State::done && n < bytes.size()) n += feed_body(bytes.substr(n));
  return n;
}

size_t RequestReader::feed_head(std::string_view bytes) {
  const size_t before = head_.size();
  head_.append(bytes.substr(0, limits_.head_bytes + 4 - std::min(before, limits_.head_bytes + 4)));
  // What does not begin with a method will never be a request, and may never have an end.
  const size_t n_method = std::min(head_.find(' '), head_.size());
  if (n_method > kMethodMax || !std::all_of(head_.begin(), head_.begin() + static_cast<std::ptrdiff_t>(n_method),
                                            [](char c) { return c >= 'A' && c <= 'Z'; })) {
    throw HttpError(400, "this is no HTTP request: needs a method in capital letters");
  }
  const size_t end = head_.find("\r\n\r\n", before > 3 ? before - 3 : 0);
  if (end == std::string::npos) {
    if (head_.size() > limits_.head_bytes) {
      const size_t line = head_.find('\n');
      if (line == std::string::npos)
        throw HttpError(414,
                        fmt::format("the target is longer than {} bytes: --max-uri raises it", limits_.target_bytes));
      throw HttpError(
          431, fmt::format("the headers are longer than {} bytes: --max-header-bytes raises it", limits_.head_bytes));
    }
    return head_.size() - before;
  }
  const size_t taken = end + 4 - before;
  const std::string head = head_.substr(0, end + 2);
  head_.resize(end + 4);
  read_head(head);
  has_head_ = true;
  return taken;
}

void RequestReader::read_head(std::string_view head) {
  size_t n_lines = 0;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (std::any_of(line.begin(), line.end(), is_control))
      throw HttpError(400, "a line of the request's head has a control character");
    if (n_lines++ == 0) {
      read_request_line(line);
    } else {
      if (n_lines > limits_.n_headers + 1)
        throw HttpError(431, fmt::format("there are more than {} headers: --max-headers raises it", limits_.n_headers));
      read_header(line);
    }
  }
  read_framing();
}

void RequestReader::read_request_line(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    throw HttpError(400, "the request line needs a method, a target and a version");
  request_.method = line.substr(0, first);
  request_.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    throw HttpError(400, "the version needs to be HTTP/1.1 or HTTP/1.0");
  request_.is_http_1_0 = version == "HTTP/1.0";
  if (request_.target.size() > limits_.target_bytes)
    throw HttpError(414, fmt::format("the target is longer than {} bytes: --max-uri raises it", limits_.target_bytes));
  const bool is_plain =
      std::all_of(request_.target.begin(), request_.target.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!request_.target.starts_with('/') || !is_plain)
    throw HttpError(400, "the target needs to be a path of printable ASCII characters");
}

void RequestReader::read_header(std::string_view line) {
  if (line.starts_with(' ') || line.starts_with('\t')) throw HttpError(400, "a header goes on in a second line");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    throw HttpError(400, "a header needs a name, a colon and a value");
  std::string name = base::lower(line.substr(0, colon));
  const bool only_once = std::find(std::begin(kOnce), std::end(kOnce), name) != std::end(kOnce);
  if (only_once && request_.header(name) != nullptr)
    throw HttpError(400, fmt::format("the header {} stands twice", name));
  request_.headers.emplace_back(std::move(name), base::trimmed(line.substr(colon + 1)));
}

void RequestReader::read_framing() {
  if (request_.header("host") == nullptr && !request_.is_http_1_0) throw HttpError(400, "the header Host is missing");
  const std::string* length = request_.header("content-length");
  const std::string* coding = request_.header("transfer-encoding");
  if (length != nullptr && coding != nullptr)
    throw HttpError(400, "Content-Length and Transfer-Encoding exclude each other");
  if (const std::string* expect = request_.header("expect")) {
    if (base::lower(*expect) != "100-continue") throw HttpError(400, "Expect: only 100-continue is known");
    expects_continue_ = true;
  }
  if (coding != nullptr) {
    if (base::lower(*coding) != "chunked" || request_.is_http_1_0)
      throw HttpError(400, "Transfer-Encoding: only chunked is known, of HTTP/1.1");
    state_ = State::chunk_size;
    return;
  }
  if (length == nullptr) return;
  const auto [end, problem] = std::from_chars(length->data(), length->data() + length->size(), left_);
  const bool digits =
      !length->empty() && std::all_of(length->begin(), length->end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (problem == std::errc() && end != length->data() + length->size()))
    throw HttpError(400, "Content-Length needs to be a number of digits");
  if (problem != std::errc() || left_ > limits_.body_bytes) {
    throw HttpError(413, fmt::format("the body is longer than {} bytes: --max-body raises it", limits_.body_bytes));
  }
  if (left_ > 0) state_ = State::body;
}

void RequestReader::add_body(std::string_view bytes) {
  if (request_.body.size() + bytes.size() > limits_.body_bytes) {
    throw HttpError(413, fmt::format("the body is longer than {} bytes: --max-body raises it", limits_.body_bytes));
  }
  request_.body += bytes;
}

// Up to the end of a line, which is kept in line_ without it; more than kChunkLineMax bytes are none.
size_t RequestReader::feed_line(std::string_view bytes) {
  size_t n = 0;
  while (n < bytes.size()) {
    line_ += bytes[n++];
    if (line_.ends_with('\n')) break;
    if (line_.size() > kChunkLineMax) throw HttpError(400, "a chunk's line is too long: no extensions, no trailers");
  }
  return n;
}

size_t RequestReader::feed_body(std::string_view bytes) {
  if (state_ == State::body || state_ == State::chunk_data) {
    const size_t n = std::min(left_, bytes.size());
    add_body(bytes.substr(0, n));
    left_ -= n;
    if (left_ == 0) state_ = state_ == State::body ? State::done : State::chunk_end;
    return n;
  }
  const size_t n = feed_line(bytes);
  if (!line_.ends_with('\n')) return n;
  if (!line_.ends_with("\r\n")) throw HttpError(400, "a chunk's line needs to end with CR and LF");
  const std::string_view line = std::string_view(line_).substr(0, line_.size() - 2);
  if (state_ == State::chunk_size) {
    const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), left_, 16);
    if (line.empty() || problem != std::errc() || end != line.data() + line.size())
      throw HttpError(400, "a chunk's size needs to be a hexadecimal number");
    if (left_ > limits_.body_bytes)
      throw HttpError(413, fmt::format("the body is longer than {} bytes: --max-body raises it", limits_.body_bytes));
    state_ = left_ == 0 ? State::last_line : State::chunk_data;
  } else {
    if (!line.empty())
      throw HttpError(400, state_ == State::last_line ? "trailers are refused" : "a chunk is longer than its size");
    state_ = state_ == State::last_line ? State::done : State::chunk_size;
  }
  line_.clear();
  return n;
}

}  // namespace assay::serve
