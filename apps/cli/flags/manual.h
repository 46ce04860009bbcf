// The man page and the shells' completions, made of the commands' tables.
#pragma once

#include <string>
#include <vector>

#include "flags/flag_table.h"

namespace assay::cli {

std::string man_page(const std::vector<CommandFacts>& commands);  // roff
// shell: bash, zsh or fish; UsageError for another.
std::string completion(const std::string& shell, const std::vector<CommandFacts>& commands);

}  // namespace assay::cli
