// Keys, hosts and origins (B75, B85 to B89).
#include "serve/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/error.h"
#include "assay/error.h"

namespace assay::serve {
namespace {

HttpRequest request(std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest r;
  r.headers = std::move(headers);
  return r;
}

int status(const std::function<void()>& call) {
  try {
    call();
  } catch (const api::ApiError& error) {
    return error.status;
  }
  return 200;
}

TEST(Access, HostsAreLoopbackOrNamed) {
  ServerOptions options;
  options.host = "192.168.0.9";
  options.allowed_hosts = {"Model.Example"};
  const Access access(options);
  const auto host = [&](const std::string& h) {
    return status([&] { access.check_origin(request({{"host", h}}), "10.0.0.1"); });
  };
  for (const char* h :
       {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "192.168.0.9:80", "10.0.0.1", "model.example:443"})
    EXPECT_EQ(host(h), 200) << h;
  for (const char* h : {"evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "localhost:80:80",
                        "localhost:x", "127.evil", "192.168.0.10"})
    EXPECT_EQ(host(h), 403) << h;
}

TEST(Access, ForeignPagesAreRefused) {
  ServerOptions options;
  options.cors_origins = {"https://good.example"};
  const Access access(options);
  const auto origin = [&](const std::string& o) {
    return status([&] { access.check_origin(request({{"host", "localhost"}, {"origin", o}}), "127.0.0.1"); });
  };
  for (const char* o : {"http://localhost:3000", "http://127.0.0.1", "https://good.example"})
    EXPECT_EQ(origin(o), 200) << o;
  for (const char* o : {"https://evil.example", "null", "https://good.example.evil", "http://good.example", ""})
    EXPECT_EQ(origin(o), 403) << o;
  EXPECT_EQ(access.cors_origin(request({{"origin", "https://good.example"}})), "https://good.example");
  EXPECT_EQ(access.cors_origin(request({{"origin", "http://localhost"}})), "");
}

TEST(Access, KeysOpen) {
  ServerOptions options;
  options.keys = parse_api_keys("# keys\nsecret-1 name=ann weight=2.5 # hers\n\n  secret-2\r\n");
  ASSERT_EQ(options.keys.size(), 2u);
  EXPECT_EQ(options.keys[0].name, "ann");
  EXPECT_EQ(options.keys[0].weight, 2.5);
  const Access access(options);
  EXPECT_EQ(access.client_of(request({{"authorization", "Bearer secret-1"}})).name, "ann");
  EXPECT_EQ(access.client_of(request({{"x-api-key", "secret-2"}})).name, "key 2");
  for (const auto& headers :
       std::vector<std::vector<std::pair<std::string, std::string>>>{{},
                                                                     {{"authorization", "Bearer secret"}},
                                                                     {{"authorization", "secret-1"}},
                                                                     {{"authorization", "Basic secret-1"}},
                                                                     {{"x-api-key", ""}},
                                                                     {{"remote_addr", "127.0.0.1"}}}) {
    EXPECT_EQ(status([&] { access.client_of(request(headers)); }), 401);
  }
  EXPECT_EQ(Access({}).client_of(request({})).name, "");
  const std::vector<ApiKey> with_hash = parse_api_keys("secret#1 name=a#b\n#secret\n  # secret\nsecret2 #3\n");
  ASSERT_EQ(with_hash.size(), 2u);
  EXPECT_EQ(with_hash[0].key, "secret#1");
  EXPECT_EQ(with_hash[0].name, "a#b");
  EXPECT_EQ(with_hash[1].key, "secret2");
  EXPECT_THROW(parse_api_keys("k name=a\nk name=b"), Error);
  EXPECT_THROW(parse_api_keys("k colour=1"), Error);
  EXPECT_THROW(parse_api_keys("k weight=0"), Error);
  EXPECT_THROW(parse_api_keys("k weight=1x"), Error);
}

}  // namespace
}  // namespace assay::serve
