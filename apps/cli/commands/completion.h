// What the Tab key adds to a line of a conversation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::cli {

struct CompletionWords {
  std::vector<std::string> commands;       // "/help"
  std::vector<std::string> settings;       // of /set: "temp"
  std::vector<std::string> file_commands;  // whose argument is a file
};

struct Completion {
  std::string insert;                // what all choices go on with, after what was typed
  std::vector<std::string> choices;  // where there are several: what the last word may become
};

// line: up to the cursor. A single choice ends with a blank, or with a slash where it is a folder.
Completion complete(std::string_view line, const CompletionWords& words);

// "~" and "~/..." in the home folder.
std::string expand_home(const std::string& path);

}  // namespace assay::cli
