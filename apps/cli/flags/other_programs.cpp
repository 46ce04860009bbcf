// See other_programs.h.
#include "flags/other_programs.h"

#include <algorithm>
#include <span>

namespace assay::cli {
namespace {

const char* find(std::span<const Habit> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Habit& h) { return means(h, name); });
  return found == table.end() ? nullptr : found->advice;
}

}  // namespace

bool means(const Habit& habit, std::string_view name) {
  if (!habit.name.ends_with('*')) return habit.name == name;
  return name.starts_with(habit.name.substr(0, habit.name.size() - 1));
}

const char* advice_for_flag(std::string_view name) { return find(kFlagHabits, name); }
const char* advice_for_verb(std::string_view name) { return find(kVerbHabits, name); }

}  // namespace assay::cli
