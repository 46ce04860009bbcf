// See other_programs.h.
#include "other_programs.h"

#include <algorithm>

namespace assay::cli {
namespace {

template <class Table>
const char* find(const Table& table, std::string_view name) {
  const auto* found = std::find_if(table.begin(), table.end(), [&](const Habit& h) { return h.name == name; });
  return found == table.end() ? nullptr : found->advice;
}

}  // namespace

const char* advice_for_flag(std::string_view name) { return find(kFlagHabits, name); }
const char* advice_for_verb(std::string_view name) { return find(kVerbHabits, name); }

}  // namespace assay::cli
