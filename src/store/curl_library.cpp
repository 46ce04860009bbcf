// See curl_library.h.
#include "store/curl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "assay/error.h"

namespace assay::store {
namespace {

constexpr const char* kName = "libcurl.so.4";  // its number has been that since 2006

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr)
    throw Error(Errc::unsupported, fmt::format("{} has no {}; needs libcurl 7.85 or newer", kName, name));
}

}  // namespace

CurlLibrary::CurlLibrary() {
  void* const library =
      ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);  // stays loaded: it starts threads and keeps state of its own
  if (library == nullptr)
    throw Error(Errc::unsupported,
                fmt::format("nothing can be fetched without {} (Debian: libcurl4): {}", kName, ::dlerror()));
  find(library, "curl_easy_init", easy_init);
  find(library, "curl_easy_cleanup", easy_cleanup);
  find(library, "curl_easy_reset", easy_reset);
  find(library, "curl_easy_setopt", easy_setopt);
  find(library, "curl_easy_perform", easy_perform);
  find(library, "curl_easy_strerror", easy_strerror);
  find(library, "curl_slist_append", slist_append);
  find(library, "curl_slist_free_all", slist_free_all);
  find(library, "curl_url", url);
  find(library, "curl_url_cleanup", url_cleanup);
  find(library, "curl_url_set", url_set);
  find(library, "curl_url_get", url_get);
  find(library, "curl_free", free);
}

}  // namespace assay::store
