// Who may ask: keys, and which hosts and pages a browser may call from.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/server.h"
#include "serve/http_request.h"

namespace assay::serve {

struct Client {
  std::string name;  // empty where nobody needs a key
  double weight = 1;
};

class Access {
 public:
  explicit Access(const ServerOptions& options);

  // ApiError(403) for a foreign Host or Origin. local: the address that the connection came in on.
  void check_origin(const HttpRequest& request, std::string_view local) const;
  // ApiError(401) without a key that is known.
  Client client_of(const HttpRequest& request) const;
  // What an answer to a page of this origin says; empty: nothing.
  std::string cors_origin(const HttpRequest& request) const;

 private:
  bool allows_host(std::string_view host, std::string_view local) const;

  struct Known {
    std::array<unsigned char, 32> digest;
    Client client;
  };
  std::vector<Known> keys_;
  std::vector<std::string> hosts_, cors_;
};

}  // namespace assay::serve
