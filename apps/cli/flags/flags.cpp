// Declares and parses flags; flag_table.cpp shows them.
#include "flags/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "flags/other_programs.h"

namespace assay::cli {

struct Flags::Declared::State {
  FlagFacts facts;
  // Throws a Need.
  std::function<void(const std::string& value)> set;
  std::optional<std::pair<int64_t, int64_t>> range;
  std::string given_as;       // on the command line, the last time; empty: it is not
  std::string variable_used;  // where its value is the environment's
};

struct Flags::Word {
  Declared::State* flag;
  std::string name, value;
};

struct Flags::State {
  struct Argument {
    ArgumentFacts facts;
    std::string* target;
    std::vector<std::string>* list;  // in place of the target: all that are left
    std::vector<std::string> instead;
    bool given = false;
  };
  std::string command, summary, examples;
  Environment environment = Environment::read;
  std::deque<Declared::State> flags;  // whose elements stay where they are
  std::map<std::string, Declared::State*> by_name;
  std::deque<Argument> arguments;
  std::vector<std::vector<std::string>> exclusive;
  std::string group = "Flags";
  bool verbose = false;  // of commands that have nothing more to say
};

namespace {

// What a value should have been; becomes a UsageError that names the flag.
struct Need {
  std::string text;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class Number>
Number number(const std::string& text, const char* what) {
  Number n{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  if (error == std::errc::result_out_of_range && at == end) throw Need{fmt::format("{} that fits into 64 bits", what)};
  if (error != std::errc() || at != end) throw Need{what};
  return n;
}

int64_t whole(const std::string& text) { return number<int64_t>(text, "a whole number"); }
double real(const std::string& text) {
  const double x = number<double>(text, "a number");
  if (std::isnan(x)) throw Need{"a number"};
  return x;
}
std::optional<uint64_t> seed(const std::string& text) {
  if (text == "-1") return std::nullopt;
  if (text.starts_with('-')) throw Need{"-1, or a whole number from 0 to 2^64 - 1"};
  try {
    return number<uint64_t>(text, "a whole number");
  } catch (const Need&) {
    throw Need{"-1, or a whole number from 0 to 2^64 - 1"};
  }
}
bool boolean(const std::string& text) {
  for (const char* yes : {"1", "true", "on", "yes", "TRUE", "ON", "YES"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "off", "no", "FALSE", "OFF", "NO"})
    if (text == no) return false;
  throw Need{"1 or 0"};
}

// Of a variable.
bool boolean_of(const std::string& name, const std::string& text) {
  try {
    return boolean(text);
  } catch (const Need& need) {
    throw UsageError(fmt::format("{} {}: needs {}", name, text, need.text));
  }
}

std::string listed(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i)
    text += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i];
  return text;
}

std::string range_text(const std::pair<int64_t, int64_t>& range) {
  if (range.second == std::numeric_limits<int64_t>::max()) return fmt::format("{} or more", range.first);
  return fmt::format("a whole number from {} to {}", range.first, range.second);
}

}  // namespace

size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

const std::vector<std::string>& describe_arguments() {
  static const std::vector<std::string> arguments = {std::string("\0describe", 9)};
  return arguments;
}

Flags::Declared& Flags::Declared::one_of(std::vector<std::string> choices) {
  state_->facts.choices = std::move(choices);
  return *this;
}
Flags::Declared& Flags::Declared::with_part(char mark) {
  state_->facts.part_mark = mark;
  return *this;
}
Flags::Declared& Flags::Declared::between(int64_t smallest, int64_t largest) {
  state_->range = {smallest, largest};
  return *this;
}
Flags::Declared& Flags::Declared::at_least(int64_t smallest) {
  return between(smallest, std::numeric_limits<int64_t>::max());
}
Flags::Declared& Flags::Declared::shows(std::string default_value) {
  state_->facts.default_value = std::move(default_value);
  return *this;
}

Flags::Flags(const std::string& command, const std::string& summary, const std::string& examples,
             Environment environment)
    : state_(std::make_unique<State>()) {
  state_->command = command;
  state_->summary = summary;
  state_->examples = examples;
  state_->environment = environment;
}

Flags::~Flags() = default;

Flags::Declared::State& Flags::declare(const std::string& names, const std::string& kind, const std::string& help) {
  Declared::State& flag = state_->flags.emplace_back();
  flag.facts.names = split(names);
  flag.facts.kind = kind;
  flag.facts.help = help;
  flag.facts.group = state_->group;
  for (const std::string& name : flag.facts.names) {
    if (!state_->by_name.emplace(name, &flag).second)
      throw std::logic_error(fmt::format("{} is declared twice in assay {}", name, state_->command));
  }
  return flag;
}

Flags::Declared Flags::value(const std::string& names, std::string& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.default_value = target;
  flag.set = [&target](const std::string& text) { target = text; };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, int64_t& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.default_value = std::to_string(target);
  flag.set = [&target](const std::string& text) { target = whole(text); };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, double& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.default_value = fmt::format("{}", target);
  flag.set = [&target](const std::string& text) { target = real(text); };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, std::optional<std::string>& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.set = [&target](const std::string& text) { target = text; };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, std::optional<int64_t>& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.set = [&target](const std::string& text) { target = whole(text); };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, std::optional<double>& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.set = [&target](const std::string& text) { target = real(text); };
  return Declared(flag);
}
Flags::Declared Flags::value(const std::string& names, std::optional<uint64_t>& target, const std::string& kind,
                             const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.default_value = target ? std::to_string(*target) : "-1";
  flag.set = [&target](const std::string& text) { target = seed(text); };
  return Declared(flag);
}

Flags::Declared Flags::values(const std::string& names, std::vector<std::string>& target, const std::string& kind,
                              const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.repeatable = true;
  flag.set = [&target](const std::string& text) { target.push_back(text); };
  return Declared(flag);
}

Flags::Declared Flags::choice(const std::string& names, std::string& target, const std::string& kind,
                              std::vector<std::string> choices, const std::string& help) {
  Declared::State& flag = declare(names, kind, help);
  flag.facts.value_optional = true;
  flag.facts.default_value = target;
  flag.facts.choices = std::move(choices);
  flag.set = [&target](const std::string& text) { target = text; };
  return Declared(flag);
}

void Flags::on(const std::string& names, bool& target, const std::string& help) {
  declare(names, {}, help).set = [&target](const std::string& text) { target = boolean(text); };
}

void Flags::on_off(const std::string& on_names, const std::string& off_names, std::optional<bool>& target,
                   const std::string& help) {
  Declared::State& flag = declare(on_names, {}, help);
  flag.facts.off_names = split(off_names);
  for (const std::string& name : flag.facts.off_names) state_->by_name.emplace(name, &flag);
  flag.set = [&target](const std::string& text) { target = boolean(text); };
}

void Flags::habit(const std::string& names, const std::string& kind, std::vector<std::string> choices) {
  std::string missing;
  for (const std::string& name : split(names)) {
    if (!state_->by_name.contains(name)) missing += (missing.empty() ? "" : ",") + name;
  }
  if (missing.empty()) return;
  Declared::State& flag = declare(missing, kind, {});
  flag.facts.habit = true;
  flag.facts.value_optional = !choices.empty();
  flag.facts.choices = std::move(choices);
  flag.set = [](const std::string&) {};
}

void Flags::positional(const std::string& name, std::string& target, const std::string& help,
                       const std::string& instead) {
  std::vector<std::string> flags;
  std::stringstream list(instead);
  for (std::string flag; std::getline(list, flag, ',');) {
    exclusive({name, flag});
    flags.push_back(flag);
  }
  state_->arguments.push_back({{name, help}, &target, nullptr, std::move(flags)});
}

void Flags::positionals(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  state_->arguments.push_back({{name, help}, nullptr, &target, {}});
}

void Flags::exclusive(const std::vector<std::string>& names) { state_->exclusive.push_back(names); }

void Flags::group(const std::string& title) { state_->group = title; }

void Flags::refuse(const std::string& word) const {
  const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word;
  if (const char* advice = advice_for_flag(name))
    throw UsageError(fmt::format("there is no flag {}: {}", name, advice));
  for (size_t n = 2; n < name.size() && !name.starts_with("--"); ++n) {  // -n5
    const auto glued = state_->by_name.find(name.substr(0, n));
    const char next = name[n];
    if (glued != state_->by_name.end() && !glued->second->facts.kind.empty() &&
        (next == '=' || (next >= '0' && next <= '9')))
      throw UsageError(fmt::format("there is no flag {}: a value is a word of its own, {} {}", name, glued->first,
                                   name.substr(next == '=' ? n + 1 : n)));
  }
  std::string nearest;
  size_t least = 3;
  for (const auto& [known, flag] : state_->by_name) {
    const size_t d = distance(name, known);
    if (known.starts_with("--") && name.size() > 4 && d < least) {
      least = d;
      nearest = known;
    }
  }
  throw UsageError("there is no flag " + name + (nearest.empty() ? "" : "; the nearest is " + nearest));
}

void Flags::take_words(const std::vector<std::string>& arguments, std::vector<Word>& words,
                       std::vector<std::string>& loose) const {
  bool only_loose = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!only_loose && word == "--") {
      only_loose = true;
      continue;
    }
    if (only_loose || word == "-" || !word.starts_with('-')) {
      loose.push_back(word);
      continue;
    }
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const auto known = state_->by_name.find(name);
    if (known == state_->by_name.end()) refuse(word);
    Word found{known->second, name, {}};
    const FlagFacts& facts = known->second->facts;
    const bool switches_off = std::find(facts.off_names.begin(), facts.off_names.end(), name) != facts.off_names.end();
    if (equals != std::string::npos) {
      found.value = word.substr(equals + 1);
      if (switches_off) throw UsageError(fmt::format("{} takes no value, found {}", name, found.value));
    } else if (facts.kind.empty()) {
      found.value = switches_off ? "0" : "1";
    } else if (facts.value_optional) {
      const bool follows = i + 1 < arguments.size() && facts.is_choice(arguments[i + 1]);
      found.value = follows ? arguments[++i] : facts.choices.front();
    } else {
      if (i + 1 == arguments.size()) throw UsageError(fmt::format("{} needs a value after it: {}", name, facts.kind));
      found.value = arguments[++i];  // which may look like a flag
    }
    words.push_back(std::move(found));
  }
}

void Flags::assign(Declared::State& flag, const std::string& name, const std::string& value) {
  const FlagFacts& facts = flag.facts;
  try {
    if (!facts.choices.empty() && !facts.is_choice(value)) throw Need{listed(facts.choices)};
    if (flag.range) {
      const int64_t n = whole(value);
      if (n < flag.range->first || n > flag.range->second) throw Need{range_text(*flag.range)};
    }
    flag.set(value);
  } catch (const Need& need) {
    throw UsageError(fmt::format("{} {}: needs {}", name, value.empty() ? "\"\"" : value, need.text));
  }
}

// What is typed as one word too many is most often the text, the file or the ids that a flag of this command gives.
std::string Flags::flag_that_takes(const std::string& word) const {
  std::error_code unknown;
  const bool is_file = std::filesystem::is_regular_file(word, unknown);
  const bool is_ids = !word.empty() && word.find_first_not_of("0123456789,[] ") == std::string::npos;
  for (const auto& [name, kind, fits] : {std::tuple("-f", "FILE", is_file), std::tuple("-i", "FILE", is_file),
                                         std::tuple("--ids", "LIST", is_ids), std::tuple("-p", "TEXT", true)}) {
    const auto flag = state_->by_name.find(name);
    if (fits && flag != state_->by_name.end() && flag->second->facts.kind == kind && flag->second->given_as.empty())
      return fmt::format("; {} {} takes it", name, kind);
  }
  return {};
}

void Flags::place(const std::vector<std::string>& loose) {
  auto argument = state_->arguments.begin();
  std::string skipped;
  for (const std::string& word : loose) {
    const auto given_instead = [&](const State::Argument& a) {
      for (const std::string& flag : a.instead) {
        if (const std::string& name = state_->by_name.at(flag)->given_as; !name.empty()) return name;
      }
      return std::string();
    };
    for (; argument != state_->arguments.end() && !given_instead(*argument).empty(); ++argument)
      skipped += fmt::format("; {} gives the {}", given_instead(*argument), argument->facts.name);
    if (argument == state_->arguments.end())
      throw UsageError(
          fmt::format("'{}' is one argument too many{}", word, skipped.empty() ? flag_that_takes(word) : skipped));
    argument->given = true;
    if (argument->list != nullptr) {
      argument->list->push_back(word);
      continue;
    }
    *argument->target = word;
    ++argument;
  }
}

void Flags::read_environment() {
  if (state_->environment == Environment::ignored) return;
  const auto is_given = [&](const std::string& name) {
    const auto flag = state_->by_name.find(name);
    if (flag != state_->by_name.end()) return !flag->second->given_as.empty();
    return std::any_of(state_->arguments.begin(), state_->arguments.end(),
                       [&](const State::Argument& a) { return a.facts.name == name && a.given; });
  };
  for (Declared::State& flag : state_->flags) {
    const auto& names = flag.facts.names;
    const bool outranked = std::any_of(state_->exclusive.begin(), state_->exclusive.end(), [&](const auto& group) {
      const bool belongs = std::any_of(group.begin(), group.end(), [&](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
      });
      return belongs && std::any_of(group.begin(), group.end(), is_given);
    });
    if (!flag.given_as.empty() || outranked) continue;
    const auto read = [&](const std::string& name, bool off) {
      const std::string variable = variable_of(name);
      const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0' || !flag.variable_used.empty()) return;
      assign(flag, variable, off ? (boolean_of(variable, value) ? "0" : "1") : value);
      flag.variable_used = variable;
    };
    for (const std::string& name : names) read(name, false);
    for (const std::string& name : flag.facts.off_names) read(name, true);
  }
}

void Flags::check_exclusive() const {
  for (const auto& group : state_->exclusive) {
    std::vector<std::string> typed, variables;
    for (const std::string& name : group) {
      const auto known = state_->by_name.find(name);
      if (known != state_->by_name.end()) {
        const Declared::State& flag = *known->second;
        if (!flag.given_as.empty()) typed.push_back(flag.given_as);
        if (!flag.variable_used.empty()) variables.push_back(flag.variable_used);
      } else if (std::any_of(state_->arguments.begin(), state_->arguments.end(),
                             [&](const State::Argument& a) { return a.facts.name == name && a.given; })) {
        typed.push_back(name);
      }
    }
    const auto& both = typed.size() > 1 ? typed : variables;
    if (both.size() > 1) throw UsageError(fmt::format("{} and {} exclude each other", both[0], both[1]));
  }
}

CommandFacts Flags::facts() const {
  CommandFacts facts{state_->command, state_->summary, state_->examples, {}, {}};
  for (const State::Argument& argument : state_->arguments) facts.arguments.push_back(argument.facts);
  for (const Declared::State& flag : state_->flags) facts.flags.push_back(flag.facts);
  return facts;
}

bool Flags::parse(const std::vector<std::string>& arguments) {
  group("Other");
  if (!state_->by_name.contains("--verbose"))
    on("-v,--verbose", state_->verbose, "Says on standard error what else there is to say");
  bool wants_help = false;
  on("-h,--help", wants_help, "Shows this");
  if (arguments == describe_arguments()) throw facts();
  std::vector<Word> words;
  std::vector<std::string> loose;
  take_words(arguments, words, loose);
  Declared::State* const help_flag = state_->by_name.at("--help");
  for (const Word& word : words) {
    if (word.flag == help_flag) return false;
    word.flag->given_as = word.name;
  }
  for (const Word& word : words) assign(*word.flag, word.name, word.value);
  place(loose);
  read_environment();
  check_exclusive();
  return true;
}

std::vector<std::string> Flags::long_names() const {
  std::vector<std::string> names;
  for (const auto& [name, flag] : state_->by_name) {
    if (name.starts_with("--")) names.push_back(name);
  }
  return names;
}

std::string Flags::help() const { return help_text(facts()); }

}  // namespace assay::cli
