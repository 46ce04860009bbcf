// The one table of a command's flags: what the parser takes is what help, man page and completions show.
#pragma once

#include <string>
#include <vector>

namespace assay::cli {

struct FlagFacts {
  std::vector<std::string> names;      // as typed: "-c", "--ctx-size"
  std::vector<std::string> off_names;  // that switch it off: "--no-bos"
  std::string kind;                    // of its value: "N", "FILE"; empty: it takes none
  std::string help;
  std::string group;                 // the title it stands under
  std::string default_value;         // empty: none
  std::vector<std::string> choices;  // the words its value can be; empty: any
  char part_mark = 0;                // a choice may have more behind it: "avx2:vector"; 0: not
  bool value_optional = false;       // "--color" and "--color on": the next word is its value only where it is a choice
  bool repeatable = false;
  bool habit = false;  // accepted because other programs have it, without effect

  bool is_choice(const std::string& value) const;
};

struct ArgumentFacts {
  std::string name;  // "MODEL"
  std::string help;
};

struct CommandFacts {
  std::string name, summary, examples;
  std::vector<ArgumentFacts> arguments;
  std::vector<FlagFacts> flags;
};

// The environment variable of a long name: "--top-k" has ASSAY_TOP_K. Empty for a short one.
std::string variable_of(const std::string& name);
// By a name it has; null where there is none.
const FlagFacts* find_flag(const CommandFacts& command, const std::string& name);
// The words that are flags, as typed: neither values nor what follows "--".
std::vector<std::string> flags_given(const CommandFacts& command, const std::vector<std::string>& arguments);

std::string help_text(const CommandFacts& command);

}  // namespace assay::cli
