// The program under test, run with these arguments.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "programs/program.h"

namespace assay::test {

inline ProgramResult assay(const std::vector<std::string>& arguments, const ProgramOptions& options = {}) {
  return run_program(ASSAY_PROGRAM, arguments, options);
}

// The names of all its commands, as its overview lists them.
inline std::vector<std::string> commands() {
  std::istringstream overview(assay({"--help"}).out);
  std::vector<std::string> names;
  for (std::string line; std::getline(overview, line) && line != "First steps:";) {
    if (line.starts_with("  ") && line.size() > 2 && line[2] != ' ')
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

}  // namespace assay::test
