// See access.h.
#include "serve/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "api/error.h"
#include "assay/error.h"
#include "base/ascii.h"

namespace assay {
namespace {

// Up to a word that begins with #: within a word it is part of a key.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') break;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
  return words;
}

}  // namespace

std::vector<ApiKey> parse_api_keys(std::string_view text) {
  std::vector<ApiKey> keys;
  for (size_t n_line = 1; !text.empty(); ++n_line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    ApiKey key{std::string(words[0]), fmt::format("key {}", keys.size() + 1), 1};
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string_view value = words[i].substr(std::min(words[i].find('=') + 1, words[i].size()));
      if (words[i].starts_with("name=") && !value.empty()) {
        key.name = value;
        continue;
      }
      const auto [rest, problem] = std::from_chars(value.data(), value.data() + value.size(), key.weight);
      const bool is_weight =
          words[i].starts_with("weight=") && problem == std::errc() && rest == value.data() + value.size();
      if (!is_weight || !(key.weight > 0 && key.weight <= 1e6)) {
        throw Error(
            Errc::bad_request,
            fmt::format("line {} of the keys: after the key only name=N and weight=W may stand, W above 0", n_line));
      }
    }
    if (std::ranges::any_of(keys, [&](const ApiKey& other) { return other.key == key.key; }))
      throw Error(Errc::bad_request, fmt::format("line {} of the keys: the key stands in a line before", n_line));
    keys.push_back(std::move(key));
  }
  return keys;
}

namespace serve {
namespace {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 || size != digest.size()) {
    throw Error(Errc::device, "SHA-256 is not to be had from OpenSSL");
  }
  return digest;
}

// "Host:port" to the host, "[::1]:80" to "[::1]".
std::string host_only(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : std::string_view::npos;
  const size_t end = bracket != std::string_view::npos ? bracket + 1 : std::min(host.find(':'), host.size());
  const std::string_view rest = host.substr(end);
  const bool is_port =
      rest.empty() || (rest[0] == ':' && rest.size() > 1 &&
                       std::all_of(rest.begin() + 1, rest.end(), [](char c) { return c >= '0' && c <= '9'; }));
  return is_port ? base::lower(host.substr(0, end)) : std::string();
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "[::1]") return true;
  if (!host.starts_with("127.")) return false;
  return std::all_of(host.begin(), host.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace

Access::Access(const ServerOptions& options) : hosts_(options.allowed_hosts), cors_(options.cors_origins) {
  hosts_.push_back(options.host);
  for (std::string& host : hosts_) host = base::lower(host);
  for (const ApiKey& key : options.keys) keys_.push_back({sha256(key.key), {key.name, key.weight}});
}

bool Access::allows_host(std::string_view host, std::string_view local) const {
  return is_loopback(host) || host == local || std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end();
}

void Access::check_origin(const HttpRequest& request, std::string_view local) const {
  if (const std::string* host = request.header("host"); host != nullptr && !allows_host(host_only(*host), local)) {
    throw api::ApiError(403, "the header Host names a foreign host: --allow-host allows it", "", "host_not_allowed");
  }
  const std::string* origin = request.header("origin");
  if (origin == nullptr || std::find(cors_.begin(), cors_.end(), *origin) != cors_.end()) return;
  const size_t scheme = origin->find("://");
  const bool is_ours =
      scheme != std::string::npos && allows_host(host_only(std::string_view(*origin).substr(scheme + 3)), local);
  if (!is_ours)
    throw api::ApiError(403, "the header Origin names a foreign page: --cors-origin allows it", "",
                        "origin_not_allowed");
}

std::string Access::cors_origin(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  return origin != nullptr && std::find(cors_.begin(), cors_.end(), *origin) != cors_.end() ? *origin : std::string();
}

Client Access::client_of(const HttpRequest& request) const {
  if (keys_.empty()) return {};
  std::string_view given;
  if (const std::string* bearer = request.header("authorization");
      bearer != nullptr && base::lower(bearer->substr(0, 7)) == "bearer ") {
    given = std::string_view(*bearer).substr(7);
  } else if (const std::string* key = request.header("x-api-key")) {
    given = *key;
  }
  if (given.empty()) throw api::ApiError(401, "needs a key: Authorization: Bearer KEY", "", "missing_api_key");
  const auto digest = sha256(given);
  const Client* found = nullptr;  // all are compared, whichever it is
  for (const Known& known : keys_) {
    if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known.client;
  }
  if (found == nullptr) throw api::ApiError(401, "the key is not known", "", "invalid_api_key");
  return *found;
}

}  // namespace serve
}  // namespace assay
