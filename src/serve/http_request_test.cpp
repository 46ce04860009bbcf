// Requests in one piece and byte by byte; what is refused (B72 to B78).
#include "serve/http_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace assay::serve {
namespace {

using ::testing::HasSubstr;

const std::string kHead = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";

std::string outcome(std::string_view bytes, size_t step = std::string::npos) {
  RequestReader reader;
  try {
    while (!bytes.empty() && !reader.done()) {
      const std::string_view part = bytes.substr(0, step);
      const size_t n = reader.feed(part);
      bytes.remove_prefix(n);
      if (n == 0) break;
    }
  } catch (const HttpError& error) {
    return std::to_string(error.status) + " " + error.what();
  }
  return reader.done() ? "done " + reader.request().body +
                             (bytes.empty() ? std::string() : std::string(" +") + std::to_string(bytes.size()))
                       : "more";
}

TEST(HttpRequest, ReadsBodiesByLengthAndInChunks) {
  for (const size_t step : {std::string::npos, size_t{1}, size_t{3}}) {
    EXPECT_EQ(outcome("GET / HTTP/1.1\r\nHost: a\r\n\r\n", step), "done ");
    EXPECT_EQ(outcome(kHead + "Content-Length: 5\r\n\r\nhello", step), "done hello");
    EXPECT_EQ(outcome(kHead + "Content-Length: 5\r\n\r\nhelloGET / ", step), "done hello +6");
    EXPECT_EQ(outcome(kHead + "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", step),
              "done abc0123456789");
    EXPECT_EQ(outcome(kHead + "Content-Length: 5\r\n\r\nhell", step), "more");
    EXPECT_EQ(outcome(kHead, step), "more");
  }
}

TEST(HttpRequest, KnowsItsHeaders) {
  RequestReader reader;
  reader.feed("GET /props?x=1 HTTP/1.1\r\nHOST:  localhost:80 \r\nX-A: b\r\nConnection: Close\r\n\r\n");
  ASSERT_TRUE(reader.done());
  EXPECT_EQ(reader.request().path(), "/props");
  EXPECT_EQ(*reader.request().header("host"), "localhost:80");
  EXPECT_EQ(reader.request().header("x-b"), nullptr);
  EXPECT_FALSE(reader.request().keeps_alive());
}

TEST(HttpRequest, RefusesWhatSomebodyElseCouldReadOtherwise) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_THAT(outcome(kHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
              HasSubstr("400 Content-Length and Transfer-Encoding"));
  EXPECT_THAT(outcome(kHead + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
              HasSubstr("400 the header content-length stands twice"));
  EXPECT_THAT(outcome(kHead + "Transfer-Encoding: gzip, chunked\r\n\r\n"), HasSubstr("400 Transfer-Encoding"));
  EXPECT_THAT(outcome(kHead + "Transfer-Encoding: identity\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(outcome("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), HasSubstr("400"));
  for (const char* length : {"-1", "+5", "5, 5", "0x5", "5 5", "", "5a"}) {
    EXPECT_THAT(outcome(kHead + "Content-Length: " + length + "\r\n\r\n"), HasSubstr("400")) << length;
  }
  EXPECT_THAT(outcome(get + " folded: x\r\n\r\n"), HasSubstr("400 a header goes on in a second line"));
  EXPECT_THAT(outcome(get + "A b: x\r\n\r\n"), HasSubstr("400 a header needs a name"));
  EXPECT_THAT(outcome(get + "A : x\r\n\r\n"), HasSubstr("400 a header needs a name"));
  EXPECT_THAT(outcome(get + "no colon\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(outcome(get + "A: x\ny\r\n\r\n"), HasSubstr("400 a line of the request's head has a control"));
  EXPECT_THAT(outcome(get + std::string("A: x\0y\r\n\r\n", 10)), HasSubstr("400"));
  EXPECT_THAT(outcome(std::string("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", 30)), HasSubstr("400"));
  EXPECT_THAT(outcome("GET / HTTP/1.1\r\n\r\n"), HasSubstr("400 the header Host is missing"));
  EXPECT_THAT(outcome("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), HasSubstr("host stands twice"));
  EXPECT_THAT(outcome("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), HasSubstr("400 the version"));
  EXPECT_THAT(outcome("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), HasSubstr("400 the target"));
  EXPECT_THAT(outcome("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(outcome("\x16\x03\x01\x02"), HasSubstr("400 this is no HTTP request"));  // a TLS hello
  EXPECT_THAT(outcome(std::string(100, 'A')), HasSubstr("400"));
  EXPECT_THAT(outcome(get + "Expect: 200-maybe\r\n\r\n"), HasSubstr("400"));
}

TEST(HttpRequest, ChunksAreExact) {
  const std::string head = kHead + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* bad : {"-2\r\n", "g\r\n", "\r\n", "3;x=y\r\n", " 3\r\n", "3 \r\n", "0x3\r\n", "3\nabc",
                          "3\r\nabcd\r\n", "3\r\nabc0\r\n\r\n", "0\r\nTrailer: x\r\n\r\n", "00000000000000003\r\n"}) {
    EXPECT_THAT(outcome(head + bad), HasSubstr("400")) << bad;
  }
  EXPECT_THAT(outcome(head + "FFFFFFFF\r\n"), HasSubstr("413"));
}

TEST(HttpRequest, LimitsNameThemselves) {
  EXPECT_THAT(outcome(kHead + "Content-Length: 16777217\r\n\r\n"),
              HasSubstr("413 the body is longer than 16777216 bytes: --max-body"));
  EXPECT_THAT(outcome(kHead + "Content-Length: 99999999999999999999999\r\n\r\n"), HasSubstr("413"));
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 64; ++i) many += "X: y\r\n";
  EXPECT_THAT(outcome(many + "\r\n"), HasSubstr("431 there are more than 64 headers: --max-headers"));
  EXPECT_THAT(outcome(std::string("GET / HTTP/1.1\r\nHost: a\r\nX: ") + std::string(40'000, 'a')),
              HasSubstr("431 the headers are longer than 32768 bytes: --max-header-bytes"));
  EXPECT_THAT(outcome(std::string("GET /") + std::string(9'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"),
              HasSubstr("414 the target is longer than 8192 bytes: --max-uri"));
  EXPECT_THAT(outcome(std::string("GET /") + std::string(100'000, 'a')), HasSubstr("414"));
  RequestReader small({.head_bytes = 1000, .n_headers = 4, .target_bytes = 100, .body_bytes = 10});
  EXPECT_THROW(
      {
        std::string chunks = kHead + "Transfer-Encoding: chunked\r\n\r\n";
        for (int i = 0; i < 11; ++i) chunks += "1\r\na\r\n";
        small.feed(chunks);
      },
      HttpError);
}

}  // namespace
}  // namespace assay::serve
