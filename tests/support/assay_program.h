// The program under test, run with these arguments.
#pragma once

#include <string>
#include <vector>

#include "support/program.h"

namespace assay::test {

inline ProgramResult assay(const std::vector<std::string>& arguments, const ProgramOptions& options = {}) {
  return run_program(ASSAY_PROGRAM, arguments, options);
}

}  // namespace assay::test
