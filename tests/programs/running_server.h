// A server on a small random model in a thread of its own, and a client that speaks to it in bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "assay/server.h"
#include "assay/session.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"

namespace assay::test {

struct Reply {
  int status = 0;
  std::string head, body;
};

// A client of one connection, which reads what it is told to and no more.
class Client {
 public:
  // receive_bytes: of the system's buffer, where a client that does not read is meant; 0: its own.
  explicit Client(uint16_t port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      ADD_FAILURE() << "no connection";
    const timeval limit{300, 0};  // of a hang: under a sanitizer an answer takes its time
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view text) {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  bool send_quietly(std::string_view text) {  // false: the other end has closed
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Whether the other end closes within this time; what it says is dropped.
  bool is_over(std::chrono::milliseconds patience) {
    pollfd waits{fd_, POLLIN, 0};
    if (::poll(&waits, 1, static_cast<int>(patience.count())) <= 0) return false;
    char buffer[4096];
    return ::recv(fd_, buffer, sizeof buffer, 0) <= 0;
  }
  bool receive() {  // false at the end
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) in_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  bool receive_until(std::string_view part) {
    while (in_.find(part) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  Reply reply(bool is_head = false) {
    Reply r;
    if (!receive_until("\r\n\r\n")) return r;
    const size_t end = in_.find("\r\n\r\n") + 4;
    r.head = in_.substr(0, end);
    in_.erase(0, end);
    r.status = std::stoi(r.head.substr(9, 3));
    if (const size_t at = r.head.find("Content-Length: "); at != std::string::npos && !is_head) {
      const size_t size = std::stoul(r.head.substr(at + 16));
      while (in_.size() < size && receive()) {
      }
      r.body = in_.substr(0, size);
      in_.erase(0, size);
    } else if (r.head.find("chunked") != std::string::npos) {
      receive_until("\r\n0\r\n\r\n");
      while (true) {
        const size_t line = in_.find("\r\n");
        const size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
        r.body += in_.substr(line + 2, size);
        in_.erase(0, line + 4 + size);
        if (size == 0) break;
      }
    }
    return r;
  }

 private:
  int fd_;
  std::string in_;
};

inline std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return std::string("POST ") + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}
inline std::string get(std::string_view path, std::string_view headers = "") {
  return std::string("GET ") + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}

// The events of a stream, less "data: ".
inline std::vector<std::string> events(const std::string& body) {
  std::vector<std::string> list;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    list.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return list;
}

class RunningServer : public ::testing::Test {
 protected:
  RunningServer() {
    write_tiny_chat_model(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string());
    options_.port = 0;
    options_.scheduler.context.n_threads = 1;
    options_.scheduler.context.n_ctx = 256;
    options_.scheduler.context.n_sequences = 4;
    options_.scheduler.n_waiting_max = 64;
    options_.seed = 11;
    options_.log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_ += std::string(line) + "\n";
    };
  }
  ~RunningServer() override { stop(); }

  void start() {
    ends_ = false;
    server_ = std::make_unique<Server>(model_, options_);
    thread_ = std::thread([this] { server_->run([this] { return ends_.load(); }); });
  }
  void stop() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Reply ask(const std::string& bytes) {
    Client client(server_->port());
    client.send(bytes);
    return client.reply(bytes.starts_with("HEAD"));
  }
  // Of /metrics: num_requests_running, or a name with its label.
  int64_t metric(const std::string& name) {
    const std::string metrics = ask(get("/metrics")).body;
    const size_t at = metrics.find("\nassay_" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stoll(metrics.substr(at + name.size() + 8));
  }
  static bool comes(const std::function<bool()>& is_so) {
    for (int i = 0; i < 30'000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return is_so();
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  // What the library says to a prompt alone, by the same options.
  Generation alone(const std::string& prompt, uint64_t seed, double temperature, int64_t n_predict,
                   uint64_t request = 0) {
    ContextOptions o;
    o.n_threads = 1;
    o.n_ctx = 256;
    Context context(model_, o);
    GenerateOptions g;
    g.n_predict = n_predict;
    g.request = request;
    g.n_top_logprobs = 1;
    g.sampling.seed = seed;
    g.sampling.temperature = temperature;
    return Generator(context).run(
        model_->tokenizer()->encode(prompt, {.parse_special = true, .add_bos = {}, .add_eos = false}), g);
  }

  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;
  std::string log_;
};

}  // namespace assay::test
