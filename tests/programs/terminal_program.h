// Runs a program on a terminal of its own, as somebody who types meets it.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace assay::test {

class TerminalProgram {
 public:
  TerminalProgram(const std::string& path, const std::vector<std::string>& arguments,
                  const std::map<std::string, std::string>& environment = {});
  ~TerminalProgram();  // ends it where it still runs
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(std::string_view keys);
  // Whether it writes this, after what the last call waited for.
  bool shows(std::string_view text, std::chrono::seconds time_limit = std::chrono::seconds(60));
  void send(int signal);
  int exit_code(std::chrono::seconds time_limit =
                    std::chrono::seconds(60));           // 128 + n where signal n ended it; -1: it did not end
  const std::string& output() const { return output_; }  // all of it so far, standard error among it

 private:
  bool read_some(int timeout_ms);

  int pid_ = -1, fd_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

}  // namespace assay::test
