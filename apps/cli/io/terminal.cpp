// Standard input, output and signals, by POSIX.
#include "io/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "assay/utf8.h"
#include "flags/flags.h"

namespace assay::cli {
namespace {

std::atomic<int> interrupt_signal{0};  // static, because a signal handler reaches nothing else

void on_interrupt(int signal) {
  if (interrupt_signal.exchange(signal) != 0) _exit(exit_code_of_signal(signal));
}

void on_bus_error(int) {
  static const char text[] =
      "assay: a mapped file was cut or could not be read any more (SIGBUS): is the model's file "
      "still being written?\n";
  const ssize_t written = ::write(STDERR_FILENO, text, sizeof text - 1);
  _exit(written < 0 ? 1 : 3);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

std::string read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR && interrupted() == 0) continue;
    if (n < 0) throw Error(Errc::io, fmt::format("{}: {}", name, std::strerror(errno)));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

namespace {

bool has_escapes() {
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

// Broken pipes are the caller's.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool stdin_is_terminal() { return isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }
bool stderr_has_escapes() { return stderr_is_terminal() && has_escapes(); }

void Output::write(std::string_view text) {
  if (stdout_is_terminal()) {
    write_styled(printable_lines(text));
  } else {
    write_styled(text);
  }
}

void Output::write_styled(std::string_view text) {
  if (gone_ || write_all(STDOUT_FILENO, text)) return;
  if (errno != EPIPE) throw Error(Errc::io, fmt::format("standard output: {}", std::strerror(errno)));
  gone_ = true;
}

void to_stderr(std::string_view text) noexcept { write_all(STDERR_FILENO, text); }

void notice(std::string_view text) { to_stderr(fmt::format("assay: {}\n", printable(text))); }

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (is_stdout()) return;
  if (path_.empty()) throw UsageError("a file to write has an empty name");
  is_new_ = ::access(path_.c_str(), F_OK) != 0;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw Error(Errc::io, fmt::format("{}: {}", path_, std::strerror(errno)));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (is_new_ && !written_) ::unlink(path_.c_str());
}

void OutputFile::write(std::string_view text) {
  written_ = true;
  if (is_stdout()) return Output().write(text);
  // A pipe or a device has no length to cut.
  if (::ftruncate(fd_, 0) != 0 && errno != EINVAL)
    throw Error(Errc::io, fmt::format("{}: {}", path_, std::strerror(errno)));
  const int fd = std::exchange(fd_, -1);
  const bool is_whole = write_all(fd, text);
  const int problem = errno;
  if (::close(fd) != 0 || !is_whole)
    throw Error(Errc::io, fmt::format("{}: {}", path_, std::strerror(is_whole ? errno : problem)));
}

void require_other_file(const std::optional<std::string>& out,
                        std::initializer_list<std::optional<std::string>> files_read) {
  if (!out || *out == "-") return;
  for (const std::optional<std::string>& in : files_read) {
    std::error_code ignored;  // a path that is not there is no other name of anything
    if (in && *in != "-" && std::filesystem::equivalent(*in, *out, ignored))
      throw Error(Errc::bad_request, fmt::format("{} is {} itself, which is read; another name is needed", *out, *in));
  }
}

std::string read_stdin() { return read_all(STDIN_FILENO, "standard input"); }

std::string read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(Errc::io, fmt::format("{}: {}", path, std::strerror(errno)));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  return read_all(fd, path);
}

std::string read_input(const std::string& path) { return path == "-" ? read_stdin() : read_file(path); }

bool want_colour(const std::string& mode) {
  if (mode == "on" || mode == "always") return true;
  if (mode == "off" || mode == "never") return false;
  if (mode != "auto") throw UsageError(fmt::format("--color {}: needs on, off or auto", mode));
  const char* no_colour = std::getenv("NO_COLOR");
  return stdout_is_terminal() && has_escapes() && (no_colour == nullptr || *no_colour == '\0');
}

void catch_interrupts() {
  handle(SIGINT, on_interrupt);
  handle(SIGTERM, on_interrupt);
}
int interrupted() noexcept { return interrupt_signal.load(); }
void clear_interrupt() noexcept { interrupt_signal.store(0); }
int exit_code_of_signal(int signal) noexcept { return 128 + signal; }

int exit_code_of(Errc code) noexcept {
  switch (code) {
    case Errc::bad_request: return 2;
    case Errc::bad_file:
    case Errc::unsupported: return 3;
    case Errc::out_of_memory: return 4;
    case Errc::io:
    case Errc::device: return 1;
  }
  return 1;
}

void set_up_signals() {
  // Closed ones become the null device opened the wrong way round: reading and writing fail, as they would.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(1);
  }
  handle(SIGPIPE, SIG_IGN);
  handle(SIGBUS, on_bus_error);
}

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), start_ms_(now_ms()) {}
Progress::~Progress() {
  if (shown_) to_stderr("\r\x1b[K");
}
void Progress::update(int64_t done, int64_t total, const std::string& remark) {
  if (done <= last_done_) start_ms_ = now_ms();  // another task began
  last_done_ = done;
  const int64_t elapsed_ms = now_ms() - start_ms_;
  if (!stderr_has_escapes() || elapsed_ms < 1000) return;
  if (shown_) to_stderr("\r\x1b[K");
  shown_ = done < total;
  if (!shown_) return;
  const double rest_ms = static_cast<double>(elapsed_ms) *
                         (static_cast<double>(total - done) / static_cast<double>(std::max<int64_t>(done, 1)));
  to_stderr(fmt::format("{}: {} of {} {} ({} %, {} left){}{}", what_, done, total, unit_, done * 100 / total,
                        duration(rest_ms / 1000), remark.empty() ? "" : ", ", remark));
}

}  // namespace assay::cli
