// The certificate and key of a server that speaks TLS.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

namespace assay::serve {

// TLS 1.2 or later with a chain of certificates and its private key, both PEM. Error(bad_request) names the file and
// what is wrong with it.
std::unique_ptr<boost::asio::ssl::context> tls_context(const std::string& certificate_file,
                                                       const std::string& key_file);

}  // namespace assay::serve
