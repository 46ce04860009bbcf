// In place of http_curl.cpp in a build without libcurl.
#include "assay/error.h"
#include "store/http.h"

namespace assay::store {

struct Http::State {};

Http::Http(HttpSettings) {
  throw Error(
      Errc::unsupported,
      "this build cannot fetch anything: libcurl was not there when it was built (Debian: libcurl4-openssl-dev)");
}
Http::~Http() = default;

HttpResult Http::get(const HttpRequest&, const std::function<bool(const HttpHead&)>&, const TakeBytes&) {
  return {};  // nobody has an Http
}

}  // namespace assay::store
