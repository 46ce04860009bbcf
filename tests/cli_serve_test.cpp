// `assay serve` from outside: what it says at the start, the same answer as `assay run`, exit codes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "programs/program.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"

extern char** environ;

namespace assay {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

// The program at work, with its standard error at hand.
class RunningServer {
 public:
  explicit RunningServer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"assay", "serve"});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (posix_spawn(&pid_, ASSAY_PROGRAM, &actions, nullptr, argv.data(), environ) != 0)
      throw std::runtime_error("no program");
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    err_ = ends[0];
  }
  ~RunningServer() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), wait();
    ::close(err_);
  }
  std::string line() {
    std::string text;
    for (char c = 0; ::read(err_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  void signal(int number) { ::kill(pid_, number); }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int err_ = -1;
};

std::string ask(uint16_t port, const std::string& path, const std::string& body) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::string request =
      "POST " + path +
      " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string reply;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) reply.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return reply.substr(reply.find("\r\n\r\n") + 4);
}

TEST(CliServe, AnswersAsRunDoesAndEndsWhenAsked) {
  const test::TempFolder folder;
  const std::string model = (folder / "tiny.gguf").string();
  test::write_tiny_chat_model(model);
  for (const int signal : {SIGTERM, SIGINT}) {
    RunningServer server({model, "--port", "0", "-c", "128", "-t", "1"});
    const std::string line = server.line();
    ASSERT_THAT(line, HasSubstr("assay: serving tiny at http://127.0.0.1:"));
    const auto port = static_cast<uint16_t>(std::stoi(line.substr(line.find("127.0.0.1:") + 10)));
    const json::value answer = json::parse(
        ask(port, "/v1/chat/completions",
            R"({"messages": [{"role": "user", "content": "ab"}], "seed": 5, "max_tokens": 20, "temperature": 1.3})"));
    const test::ProgramResult run = test::run_program(
        ASSAY_PROGRAM, {"run", model, "-p", "ab", "-s", "5", "-n", "20", "--temp", "1.3", "-c", "128", "--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const json::value alone = json::parse(run.out);
    EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), alone.at("text"));
    EXPECT_EQ(answer.at("usage").at("completion_tokens").to_number<int>(),
              alone.at("usage").at("completion_tokens").to_number<int>());
    EXPECT_THAT(server.line(), HasSubstr("\"status\":200"));
    server.signal(signal);
    EXPECT_EQ(server.wait(), 128 + signal);
  }
}

TEST(CliServe, HelpTeaches) {
  EXPECT_THAT(test::run_program(ASSAY_PROGRAM, {"--help"}).out, HasSubstr("\n  serve "));
  const test::ProgramResult help = test::run_program(ASSAY_PROGRAM, {"serve", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(help.out, HasSubstr("Examples:\n  "));
  EXPECT_THAT(help.out, HasSubstr("-np,--parallel N"));
}

TEST(CliServe, WrongCallsSayWhatIsNeeded) {
  const test::TempFolder folder;
  const std::string model = (folder / "tiny.gguf").string();
  test::write_tiny_chat_model(model);
  const auto refused = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", model});
    const test::ProgramResult r = test::run_program(ASSAY_PROGRAM, arguments);
    return std::to_string(r.exit_code) + " " + r.err;
  };
  EXPECT_THAT(refused({"--port", "70000"}), HasSubstr("2 assay: --port 70000: needs 0 to 65535"));
  EXPECT_THAT(refused({"-np", "0"}), HasSubstr("2 assay: -np 0"));
  EXPECT_THAT(refused({"--host", "0.0.0.0"}), HasSubstr("needs keys (--api-key-file), or --no-key"));
  EXPECT_THAT(refused({"--host", "example.org"}), HasSubstr("needs an address"));
  EXPECT_THAT(refused({"--api-key-file", "/dev/null"}),
              HasSubstr("2 assay: --api-key-file /dev/null: it holds no key"));
  EXPECT_THAT(refused({"--host", "192.0.2.1", "--no-key"}),
              HasSubstr("1 assay: 192.0.2.1 port 8080"));  // no address of this machine
}

}  // namespace
}  // namespace assay
