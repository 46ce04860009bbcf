// Runs a program on a terminal of its own, for what it does only there.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace assay::test {

struct TerminalResult {
  int exit_code = -1;  // 128 + n where signal n ended it
  std::string shown;   // what reached the terminal, both streams
};

// input is typed at once. Killed after a minute.
TerminalResult run_on_terminal(const std::string& path, const std::vector<std::string>& arguments,
                               const std::string& input = {},
                               const std::map<std::string, std::string>& environment = {});

}  // namespace assay::test
