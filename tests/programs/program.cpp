// Running a program with pipes, by POSIX.
#include "programs/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace assay::test {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close_end(read_end); }
  void close_write() { close_end(write_end); }

 private:
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

// Takes what there is; false at the end.
bool drain(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) text.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

[[noreturn]] void become(const std::string& path, const std::vector<std::string>& arguments,
                         const ProgramOptions& options, Pipe& in, Pipe& out, Pipe& err) {
  ::dup2(in.read_end, 0);
  ::dup2(out.write_end, 1);
  ::dup2(err.write_end, 2);
  become_program(path, arguments, options.environment);
}

}  // namespace

ProgramResult run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) become(path, arguments, options, in, out, err);
  in.close_read();
  out.close_write();
  err.close_write();
  if (options.close_output) out.close_read();
  ProgramResult result;
  size_t n_written = 0;
  bool signalled = options.signal == 0;
  const auto deadline = std::chrono::steady_clock::now() + options.time_limit;
  while (out.read_end >= 0 || err.read_end >= 0) {
    if (n_written == options.input.size()) in.close_write();
    pollfd polled[3] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}, {in.write_end, POLLOUT, 0}};
    ::poll(polled, 3, 100);
    if (polled[0].revents != 0 && !drain(out.read_end, result.out)) out.close_read();
    if (polled[1].revents != 0 && !drain(err.read_end, result.err)) err.close_read();
    if (polled[2].revents != 0) {
      const ssize_t n = ::write(in.write_end, options.input.data() + n_written,
                                std::min<size_t>(options.input.size() - n_written, 4096));
      n_written = n > 0 ? n_written + static_cast<size_t>(n) : options.input.size();
    }
    if (!signalled && !result.out.empty() && result.out.find(options.signal_after_output) != std::string::npos) {
      ::kill(child, options.signal);
      signalled = true;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      break;
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

void become_program(const std::string& path, const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& environment) {
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
    if (name.starts_with("ASSAY_") && name != "ASSAY_MODELS") settings.push_back(name);
  }
  ::signal(SIGPIPE, SIG_DFL);
  for (const std::string& name : settings) ::unsetenv(name.c_str());
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace assay::test
