// The text of --help, and what else is read from a command's table.
#include "flags/flag_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace assay::cli {
namespace {

constexpr size_t kHelpColumn = 34, kLineColumns = 110;
constexpr char kNoBreak = '\x01';  // a blank at which no line ends

// The words of a text on lines that go on below the first one's beginning.
void append_wrapped(std::string& out, const std::string& text, size_t indent) {
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (column > indent && column + 1 + length > kLineColumns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out.append(text, begin, length);
    column += length;
    begin = end + 1;
  }
  out += '\n';
}

void append_entry(std::string& out, const std::string& head, const std::string& text) {
  out += "  " + head;
  const size_t used = 2 + head.size();
  if (text.empty()) {
    out += '\n';
    return;
  }
  out += used + 1 < kHelpColumn ? std::string(kHelpColumn - used, ' ') : '\n' + std::string(kHelpColumn, ' ');
  append_wrapped(out, text, kHelpColumn);
}

std::string head_of(const FlagFacts& flag) {
  std::string head = fmt::format("{}", fmt::join(flag.names, ","));
  if (!flag.off_names.empty()) head += fmt::format(", {}", fmt::join(flag.off_names, ","));
  if (!flag.kind.empty()) head += flag.value_optional ? " [" + flag.kind + "]" : " " + flag.kind;
  return head;
}

}  // namespace

bool FlagFacts::is_choice(const std::string& value) const {
  const std::string whole = part_mark == 0 ? value : value.substr(0, value.find(part_mark));
  return std::find(choices.begin(), choices.end(), whole) != choices.end();
}

std::string variable_of(const std::string& name) {
  if (!name.starts_with("--")) return {};
  std::string variable = "ASSAY_" + name.substr(2);
  for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

const FlagFacts* find_flag(const CommandFacts& command, const std::string& name) {
  for (const FlagFacts& flag : command.flags) {
    for (const auto* names : {&flag.names, &flag.off_names}) {
      if (std::find(names->begin(), names->end(), name) != names->end()) return &flag;
    }
  }
  return nullptr;
}

std::vector<std::string> flags_given(const CommandFacts& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> given;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const FlagFacts* const flag = find_flag(command, arguments[i]);
    if (flag == nullptr) continue;
    given.push_back(arguments[i]);
    if (!flag->kind.empty() && !flag->value_optional) ++i;
  }
  return given;
}

std::string help_text(const CommandFacts& command) {
  std::string out = command.summary + "\n\nUsage: assay " + command.name;
  for (const ArgumentFacts& argument : command.arguments) out += " [" + argument.name + "]";
  out += " [flags]\n";
  if (!command.arguments.empty()) out += "\nArguments:\n";
  for (const ArgumentFacts& argument : command.arguments) append_entry(out, argument.name, argument.help);
  std::string group, habits;
  for (const FlagFacts& flag : command.flags) {
    if (flag.habit) {
      habits += (habits.empty() ? "" : "; ") + head_of(flag);
      continue;
    }
    if (flag.group != group) out += "\n" + (group = flag.group) + ":\n";
    append_entry(out, head_of(flag),
                 flag.default_value.empty() ? flag.help
                                            : fmt::format("{} (default{}{})", flag.help, kNoBreak, flag.default_value));
  }
  if (!habits.empty()) {
    out += "\nAccepted for habit, without effect:\n  ";
    append_wrapped(out, habits, 2);
  }
  out += "\nExamples:\n" + command.examples +
         "\nEach long flag has an environment variable, which the flag outranks: --some-flag reads ASSAY_SOME_FLAG.\n";
  std::replace(out.begin(), out.end(), kNoBreak, ' ');
  return out;
}

}  // namespace assay::cli
