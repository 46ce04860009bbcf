// What a command runs: text, from a flag, a file or standard input, or token ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/model.h"
#include "flags/flags.h"

namespace assay::cli {

// UsageError where there is nothing to read: `from` says where it was looked for.
void require_some(const std::string& text, const std::string& from);

// -p, -f, standard input; and, where the command takes ids, --ids and --ids-file.
struct TextInput {
  std::optional<std::string> prompt, file, ids, ids_file;

  void add(Flags& flags, const std::string& about_prompt, const std::string& about_file);
  void add_ids(Flags& flags);
  bool is_ids() const { return ids || ids_file; }
  std::string text() const;  // UTF-8, not empty; UsageError where there is none
  // The tokens of either, text with control tokens as tokens and BOS as the file says.
  std::vector<TokenId> listed_ids() const;
};

std::vector<TokenId> raw_ids(const Model& model, const std::string& text);

}  // namespace assay::cli
