// What clients can do wrong on purpose, through the socket: bodies, grammars, schemas, HTTP that two could read as two
// things, slowness, and clients that read nothing. Each is answered, costs little, and the server goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "programs/running_server.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::get;
using test::post;
using test::Reply;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

std::string repeated(size_t n, std::string_view text) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += text;
  return all;
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  }
  return 0;
}

// Sends bytes whatever becomes of the connection, and returns the status of what comes back; 0: it was closed without a
// word.
int status_of_bytes(uint16_t port, std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const timeval limit{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  std::string in;
  char buffer[4096];
  while (in.size() < 12) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) break;
    in.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return in.size() < 12 ? 0 : std::stoi(in.substr(9, 3));
}

struct Case {
  const char* id;
  std::string path, body;
  int status;  // -1: 200 or 400
};

class HostileTest : public test::RunningServer {
 protected:
  void check(const std::vector<Case>& cases) {
    ask(post("/v1/completions",
             R"({"prompt": "a", "max_tokens": 1, "grammar": "root ::= \"a\""})"));  // what is made once
    const int64_t before = resident_kib();
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(c.id) + " " + c.path + " " + c.body.substr(0, 120));
      const double begun = cpu_seconds();
      const Reply r = ask(post(c.path, c.body));
      if (c.status > 0) {
        EXPECT_EQ(r.status, c.status) << r.body.substr(0, 300);
      } else {
        EXPECT_THAT(r.status, AnyOf(Eq(200), Eq(400))) << r.body.substr(0, 300);
      }
      if (r.status != 200) {
        EXPECT_TRUE(json::parse(r.body).at("error").at("message").is_string());
      }
      EXPECT_LT(cpu_seconds() - begun, kCpuMost);
    }
    EXPECT_LT(resident_kib() - before, kKibMost);
    EXPECT_EQ(ask(get("/health")).status, 200);
  }
  // 100 ms and 64 MiB are asked of a server compiled with all optimisation; CI's has less, and sanitizers take many
  // times as much.
#if defined(ASSAY_SANITIZED) || !defined(NDEBUG)
  static constexpr double kCpuMost = 60;
  static constexpr int64_t kKibMost = 2 << 20;
#else
  static constexpr double kCpuMost = 0.25;
  static constexpr int64_t kKibMost = 64 << 10;
#endif
};

constexpr const char* kText = "/v1/completions";
constexpr const char* kChats = "/v1/chat/completions";

std::string json_string(const std::string& text) { return json::serialize(json::value(text)); }
std::string grammar(const std::string& text) {
  return R"({"prompt": "a", "max_tokens": 2, "grammar": )" + json_string(text) + "}";
}
std::string schema(const std::string& text) {
  return R"({"prompt": "a", "max_tokens": 2, "json_schema": )" + text + "}";
}
std::string chat(const std::string& rest) {
  return R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, )" + rest + "}";
}

TEST_F(HostileTest, TextsGrammarsAndSchemas) {
  start();
  std::string chain, optional, refs;
  for (int i = 0; i < 3000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  for (int i = 0; i < 3000; ++i)
    optional += (i ? "," : "") + std::string("\"p") + std::to_string(i) + "\": {\"type\": \"integer\"}";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\": \"#/$defs/d" + std::to_string(i + 1) + "\"}";
    refs += "\"d" + std::to_string(i) + "\": {\"type\": \"array\", \"prefixItems\": [" + next + "," + next +
            "], \"minItems\": 2},";
  }
  check({
      {"B44", "/tokenize", R"({"content": ")" + std::string(1 << 18, 'a') + "\"}", 200},
      {"B45", "/tokenize", R"({"content": ")" + repeated(1 << 16, "\\n") + "\"}", 200},
      {"B45", "/tokenize", R"({"content": ")" + std::string(1 << 16, '\xff') + "\"}", 400},
      {"B46", kText, grammar("root ::= " + std::string(30'000, '(') + "\"a\"" + std::string(30'000, ')')), 400},
      {"B46", kText, grammar("root ::= " + std::string(60'000, '(')), 400},
      {"B47", kText, grammar("root ::= r0\n" + chain + "r3000 ::= \"a\""), -1},
      {"B47", kText, grammar(repeated(100'000, "a ::= b\n")), 400},
      {"B48", kText, grammar("root ::= root \"a\" | \"a\""), -1},
      {"B48", kText, grammar("root ::= (((\"a\"{0,1000}){0,1000}){0,1000})"), -1},
      {"B48", kText, schema(R"({"type": "string", "minLength": 1000000000})"), 400},
      {"B49", kText, grammar("root ::= ::= [[["), 400},
      {"B49", kText, grammar("wurzel ::= \"a\""), 400},
      {"B50", kChats,
       chat(
           R"("tools": [{"type": "function", "function": {"name": "f", "description": "\"}]}\\u0000<|im_end|>{{ x }}"}}], "tool_choice": "required")"),
       -1},
      {"B51", kText, schema(repeated(100'000, "{\"items\":") + "{}" + std::string(100'000, '}')), 400},
      {"B51", kText, schema(R"({"type": "string", "pattern": ")" + std::string(50'000, '(') + "\"}"), 400},
      {"B52", kText, schema(R"({"type": "string", "pattern": "^+[a-z]$"})"), 400},
      {"B52", kText, schema(R"({"type": "string", "pattern": "^{2}x$"})"), 400},
      {"B52", kText, schema(R"({"type": "string", "pattern": "(?<=a)b"})"), 400},
      {"B53", kText, schema("{\"type\": \"object\", \"properties\": {" + optional + "}}"), -1},
      {"B54", kText, schema(R"({"type": "string", "colour": "red"})"), 400},
      {"B54", kChats, chat(R"("response_format": {"type": "json_schema", "schema": {"type": "object"}})"), 400},
      {"B54", kChats,
       chat(
           R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "["}}})"),
       400},
      {"B55", kText, schema(R"({"$ref": "#"})"), 400},
      {"B55", kText, schema(R"({"$ref": "#/$defs/none"})"), 400},
      {"B55", kText, schema("{\"$ref\": \"#/$defs/d0\", \"$defs\": {" + refs + "\"d40\": {\"type\": \"null\"}}}"), -1},
      {"B55", kText, schema("{\"enum\": [" + repeated(60'000, "\"aaaa\",") + "\"b\"]}"), 400},
      {"B55", kText, schema(R"({"type": "array", "minItems": 3, "maxItems": 2})"), 400},
      {"B55", kText, schema(R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})"),
       -1},
      {"B55", kText, schema(R"({"type": "string", "type": "null"})"), 400},
      {"B56", kText, schema(R"({"type": "string", "pattern": "foo**"})"), 400},
      {"B56", kText, schema(R"({"type": 5})"), 400},
      {"B57", kChats, chat(R"("chat_template": "{% for i in range(1000000000) %}{% endfor %}")"), 400},
      {"B58", "/apply-template",
       R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"x": 1}})", 400},
      {"B59", kChats,
       R"({"messages": [{"role": "user", "content": ")" + std::string(1000, '(') +
           R"({{ {% macro a() %}{{ a() }}"}], "max_tokens": 2})",
       -1},
      {"B60", kChats, chat(R"("chat_template_kwargs": {"messages": "().__class__"})"), 400},
      {"B61", kChats,
       R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[1, "}}]},
          {"role": "tool", "tool_call_id": "c", "content": "x"}], "max_tokens": 2})",
       -1},
      {"B61", kChats,
       R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]}]})",
       400},
  });
}

TEST_F(HostileTest, FieldsAndJson) {
  start();
  std::string biases;
  for (int i = 0; i < 100'000; ++i) biases += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  const auto messages = [](const std::string& m) { return "{\"messages\": [" + m + "], \"max_tokens\": 2}"; };
  const auto text = [](const std::string& m) { return "{\"prompt\": \"a\", \"max_tokens\": 2, " + m + "}"; };
  check({
      {"B62", kChats, chat(R"("chat_parser": {"children": [{}]})"), 400},
      {"B63", kText, text(R"("n_discard": -1)"), 400},
      {"B64", kText, text(R"("dry_allowed_length": -5)"), 400},
      {"B64", kText, text(R"("n_cmpl": 1000)"), 400},
      {"B65", kText, text(R"("n": 1000000000)"), 400},
      {"B67", kChats,
       R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}], "json_schema": {"type": "null"}})",
       400},
      {"B67", "/v1/embeddings", R"({"input": [)" + repeated(10'000, "5,") + "5]}", 400},
      {"B68", kText, R"({"prompt": [5, -1]})", 400},
      {"B68", kText, R"({"prompt": [2147483648]})", 400},
      {"B68", kText, R"({"prompt": [100000]})", 400},
      {"B68", kText, R"({"prompt": [)" + repeated(40'960, "7,") + "7]}", 400},
      {"B69", kChats, chat(R"("metadata": {"a": {"b": [{"c": null}]}})"), 400},
      {"B69", kChats, chat("\"chat_template_kwargs\": {\"a\": " + std::string(60, '[') + std::string(60, ']') + "}"),
       400},
      {"B79", kText, std::string(100'000, '['), 400},
      {"B79", kText, text(R"("temperature": 1e999)"), 400},
      {"B79", kText, text(R"("temperature": NaN)"), 400},
      {"B79", kText, text(R"("temperature": -0)"), 200},
      {"B79", kText, text(R"("seed": -0)"), 200},
      {"B79", kText, text(R"("seed": 1, "seed": 2)"), 400},
      {"B79", kText, text(R"("s\u0065ed": 1, "seed": 2)"), 400},
      {"B79", kText, text(R"("seed": 123456789012345678901234567890)"), 400},
      {"B79", kText, R"({"prompt": "\ud800"})", 400},
      {"B79", kText, R"({"prompt": "\udc00\ud800"})", 400},
      {"B79", kText, "{\"prompt\": \"\xed\xa0\x80\"}", 400},
      {"B79", kText, "{\"prompt\": \"\xc3(\"}", 400},
      {"B79", kText, R"({"prompt": "a\u0000b", "max_tokens": 2})", 200},
      {"B79", kText, std::string("{\"prompt\": \"a\0b\"}", 17), 400},
      {"B79", kText, "\xef\xbb\xbf{\"prompt\": \"a\"}", 400},
      {"B79", kText, "", 400},
      {"B79", kText, "null", 400},
      {"B79", kText, R"({"prompt": "a"} {"prompt": "b"})", 400},
      {"B79", kText, text("\"stop\": [" + repeated(10'000, "\"a\",") + "\"a\"]"), 400},
      {"B79", kText, text("\"logit_bias\": {" + biases + "}"), 400},
      {"B79", kChats, messages(""), 400},
      {"B79", kChats, messages(R"({"content": "a"})"), 400},
      {"B79", kChats, messages(R"({"role": "assistant", "content": null})"), 400},
      {"B79", kChats, messages(R"({"role": null, "content": "a"})"), 400},
      {"B80", kChats,
       R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}]}]})",
       400},
      {"B80", "/v1/responses",
       R"({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://169.254.169.254/"}]}]})",
       400},
  });
  EXPECT_EQ(status_of_bytes(server_->port(), post(kText, "{\"prompt\": \"" + std::string(17 << 20, 'a') + "\"}")),
            413);  // B79: before it is read
}

TEST_F(HostileTest, BytesThatAreNoRequestOrTwo) {
  start();
  const std::string host = "Host: localhost\r\n", type = "Content-Type: application/json\r\n";
  const std::string tokenize = "POST /tokenize HTTP/1.1\r\n" + host + type;
  const struct {
    const char* id;
    std::string bytes;
    int status;
  } kCases[] = {
      {"B72", tokenize + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", 400},
      {"B72", tokenize + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 400},
      {"B72", tokenize + "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 413},
      {"B72", tokenize + "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400},
      {"B72", tokenize + "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n", 400},
      {"B72",
       tokenize + "Transfer-Encoding: chunked\r\n\r\n" +
           repeated(18, "100000\r\n" + std::string(1 << 20, ' ') + "\r\n"),
       413},  // chunks without an end
      {"B73", std::string(1 << 17, 'A'), 400},
      {"B73", "GET /" + std::string(1 << 17, 'a'), 414},
      {"B74", "GET /health HTTP/1.1\r\n" + host + repeated(5000, "a: b\r\n") + "\r\n", 431},
      {"B74", "GET /health HTTP/1.1\r\n" + host + "a: " + std::string(40'000, 'b') + "\r\n\r\n", 431},
      {"B74", "GET /health HTTP/1.1\r\n" + host + "a: " + std::string(40'000, 'b'), 431},
      {"B76", tokenize + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Evil: a\r\n\r\n", 400},
      {"B76", "GET /health HTTP/1.1\r\n" + host + "X: a\rSet-Cookie: b\r\n\r\n", 400},
      {"B78", tokenize + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"B78", tokenize + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"B78", tokenize + "Content-Length: 2, 2\r\n\r\n{}", 400},
      {"B78", tokenize + "Content-Length: -2\r\n\r\n{}", 400},
      {"B78", tokenize + "Content-Length: +2\r\n\r\n{}", 400},
      {"B78", tokenize + "Content-Length: 99999999999999999999999\r\n\r\n{}", 413},
      {"B78", tokenize + "Content-Length : 2\r\n\r\n{}", 400},
      {"B78", tokenize + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"B78", tokenize + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"B78", tokenize + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415},
      {"B78", tokenize + "A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"B78", "GET /health HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"B78", "GET /health HTTP/1.1\r\n\r\n", 400},
      {"B78", std::string("GET /hea\0lth HTTP/1.1\r\n", 23) + host + "\r\n", 400},
      {"B78", "GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"B78", "GET /health HTTP/2.0\r\n" + host + "\r\n", 400},
      {"B78", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"B78", "CONNECT localhost:1 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"B78", "get /health HTTP/1.1\r\n" + host + "\r\n", 400},
      {"B78", "\r\n\r\nGET /health HTTP/1.1\r\n" + host + "\r\n", 400},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.id) + " " + c.bytes.substr(0, 200));
    EXPECT_EQ(status_of_bytes(server_->port(), c.bytes), c.status);
  }
  // B77: parts are not served: the whole comes.
  EXPECT_EQ(ask(get("/health", "Range: bytes=" + repeated(2000, "0-,") + "0-\r\n")).body, R"({"status":"ok"})");
  // B76: what is given back in a header stays in it.
  EXPECT_THAT(ask(get("/health", "X-Request-Id: a%0d%0aSet-Cookie:b\r\n")).head, Not(HasSubstr("Cookie")));
  // B78: many requests in one go are answered in their order.
  test::Client client(server_->port());
  std::thread sender([&] { client.send(repeated(10'000, get("/health"))); });
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(client.reply().status, 200);
  sender.join();
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HostileTest, HeadersThatNameOnesOwnDoNotOpenDoors) {  // B75
  options_.keys = parse_api_keys("sesame");
  start();
  for (const char* header :
       {"REMOTE_ADDR: 127.0.0.1", "X-Forwarded-For: 127.0.0.1", "LOCAL_ADDR: 127.0.0.1", "X-Real-IP: ::1",
        "Authorization: Basic sesame", "Authorization: Bearer sesame2", "X-Api-Key: sesam"}) {
    EXPECT_EQ(ask(get("/v1/models", std::string(header) + "\r\n")).status, 401) << header;
  }
}

TEST_F(HostileTest, PenaltiesBesideGuesses) {  // B66
  options_.scheduler.drafts.kind = DraftKind::ngram;
  start();
  for (int i = 0; i < 3; ++i) {
    const Reply r = ask(post(
        kText,
        R"({"prompt": "abababababab", "max_tokens": 40, "presence_penalty": 1, "repeat_penalty": 1.3, "frequency_penalty": -1, "dry_multiplier": 1, "logit_bias": {"264": -100}})"));
    EXPECT_EQ(r.status, 200) << r.body;
  }
}

TEST_F(HostileTest, SlowClientsHaveATime) {
  options_.head_s_max = 0.3;
  options_.idle_s_max = 0.5;
  options_.body_bytes_per_s = 1e6;
  start();
  const auto is_closed = [&](const std::string& begin, const std::string& drip) {
    test::Client client(server_->port());
    client.send(begin);
    // A byte now and then does not put the end off.
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::seconds(30)) {
      if (!client.send_quietly(drip)) return true;
      if (client.is_over(std::chrono::milliseconds(20))) return true;
    }
    return false;
  };
  EXPECT_TRUE(is_closed("GET /health HTTP/1.1\r\nHost: localhost\r\nA: ", "a"));
  EXPECT_TRUE(is_closed(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
      "a"));
  EXPECT_TRUE(
      is_closed("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
                "chunked\r\n\r\n",
                "1\r\na\r\n"));
  EXPECT_TRUE(is_closed("GET /health HTTP/1.1\nHost: localhost\n\n", ""));
  EXPECT_TRUE(is_closed("", ""));
  // B78: a body that never follows its announcement.
  EXPECT_TRUE(
      is_closed("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
                "100-continue\r\nContent-Length: 10\r\n\r\n",
                ""));
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HostileTest, RequestsAndHealthWhileItEnds) {  // B71
  start();
  std::vector<std::thread> clients;
  std::atomic<int> n_wrong = 0;
  std::atomic<bool> over = false;
  const uint16_t port = server_->port();
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      while (!over) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval limit{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        const std::string bytes = i % 2 ? get("/health") : post("/tokenize", R"({"content": "ab"})");
        char head[13] = {};
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
            ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 && ::recv(fd, head, 12, MSG_WAITALL) == 12) {
          const std::string status(head + 9, 3);
          if (status != "200" && status != "503") ++n_wrong;
        }
        ::close(fd);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the server needs a processor too
      }
    });
  }
  EXPECT_EQ(ask(post(kText, R"({"prompt": "a", "max_tokens": 20})")).status, 200);
  stop();
  over = true;
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(n_wrong, 0);
}

}  // namespace
}  // namespace assay
