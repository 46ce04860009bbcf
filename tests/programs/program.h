// Runs a program as a user would: arguments, standard input, environment, signals; gives back what
// it printed and how it ended.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace assay::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + n where signal n ended it
  std::string out, err;
};

struct ProgramOptions {
  std::string input;                               // standard input
  std::map<std::string, std::string> environment;  // added
  std::chrono::seconds time_limit{120};            // then it is killed
  bool close_output = false;                       // its standard output has no reader
  int signal = 0;                                  // sent once
  std::string signal_after_output;                 // ... as soon as standard output holds this (empty: at once
                                                   // that it holds anything)
};

ProgramResult run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});

// In a child process: becomes the program, without the settings that the tests' own environment has for it (ASSAY_...,
// but for the folder of models).
[[noreturn]] void become_program(const std::string& path, const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment);

}  // namespace assay::test
