// Flags by CLI11, in the one source that includes it.
#include "flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

namespace assay::cli {
namespace {

std::string variable_of(const std::string& long_name) {  // "--top-k" to "ASSAY_TOP_K"
  std::string name = "ASSAY_" + long_name.substr(2);
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Shows llama.cpp's short flags of several letters among an option's names.
class Formatter : public CLI::Formatter {
 public:
  explicit Formatter(const std::map<std::string, std::string>& aliases) : aliases_(aliases) {
    column_width(34);
    label("Positionals", "Arguments");
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    if (is_positional) return name;
    for (const auto& [alias, target] : aliases_) {
      if (option->check_name(target)) name = alias + "," + name;
    }
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    (void)app;
    return "Usage: " + name + " [flags]\n";
  }

 private:
  const std::map<std::string, std::string>& aliases_;
};

}  // namespace

struct Flags::State {
  Environment environment = Environment::read;
  CLI::App app;
  std::map<std::string, std::string> aliases;  // "-ub" to "--ubatch-size"
  std::map<std::string, bool> takes_value;     // by every name of a flag
  std::string current_group = "Flags";
};

Flags::Flags(const std::string& command, const std::string& summary, const std::string& examples,
             Environment environment)
    : state_(std::make_unique<State>()) {
  state_->environment = environment;
  CLI::App& app = state_->app;
  app.name("assay " + command);
  app.description(summary);
  app.footer("\nExamples:\n" + examples +
             "\nEach flag has an environment variable, which the flag outranks: --some-flag reads "
             "ASSAY_SOME_FLAG.");
  app.formatter(std::make_shared<Formatter>(state_->aliases));
  app.set_help_flag();  // parse() adds it, so that it stands last
  app.allow_windows_style_options(false);
}

Flags::~Flags() = default;

// Notes the names and returns those that CLI11 knows how to take.
std::string Flags::split_names(const std::string& names, bool takes_value) {
  std::vector<std::string> aliases, rest;
  std::stringstream stream(names);
  std::string long_name;
  for (std::string name; std::getline(stream, name, ',');) {
    state_->takes_value[name] = takes_value;
    const bool is_long = name.starts_with("--");
    if (is_long && long_name.empty()) long_name = name;
    (!is_long && name.size() > 2 ? aliases : rest).push_back(name);
  }
  for (const std::string& alias : aliases) state_->aliases[alias] = long_name;
  std::string joined;
  for (const std::string& name : rest) joined += (joined.empty() ? "" : ",") + name;
  return joined;
}

std::string Flags::variable(const std::string& names) const {
  if (state_->environment == Environment::ignored) return {};
  const size_t at = names.find("--");
  return variable_of(names.substr(at, names.find(',', at) - at));
}

template <class T>
void Flags::add(const std::string& names, T& target, const std::string& kind,
                const std::string& help) {
  state_->app.add_option(split_names(names, true), target, help)
      ->type_name(kind)
      ->envname(variable(names))
      ->group(state_->current_group);
}

void Flags::value(const std::string& names, std::string& target, const std::string& kind,
                  const std::string& help) {
  add(names, target, kind, help);
}
void Flags::value(const std::string& names, int64_t& target, const std::string& kind,
                  const std::string& help) {
  add(names, target, kind, help);
}
void Flags::value(const std::string& names, double& target, const std::string& kind,
                  const std::string& help) {
  add(names, target, kind, help);
}
void Flags::value(const std::string& names, std::optional<std::string>& target,
                  const std::string& kind, const std::string& help) {
  add(names, target, kind, help);
}
void Flags::value(const std::string& names, std::optional<int64_t>& target, const std::string& kind,
                  const std::string& help) {
  add(names, target, kind, help);
}
void Flags::value(const std::string& names, std::optional<double>& target, const std::string& kind,
                  const std::string& help) {
  add(names, target, kind, help);
}

void Flags::values(const std::string& names, std::vector<std::string>& target,
                   const std::string& kind, const std::string& help) {
  state_->app.add_option(split_names(names, true), target, help)
      ->type_name(kind)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->envname(variable(names))
      ->group(state_->current_group);
}

void Flags::on(const std::string& names, bool& target, const std::string& help) {
  state_->app.add_flag(split_names(names, false), target, help)
      ->envname(variable(names))
      ->group(state_->current_group);
}

void Flags::on_off(const std::string& on_name, const std::string& off_name,
                   std::optional<bool>& target, const std::string& help) {
  const std::string on_names = split_names(on_name, false);
  const std::string off_names = split_names(off_name, false);
  state_->app
      .add_flag_function(
          on_names + ",!" + off_names, [&target](int64_t count) { target = count > 0; }, help)
      ->envname(variable(on_name))
      ->group(state_->current_group);
}

void Flags::positional(const std::string& name, std::string& target, const std::string& help) {
  state_->app.add_option(name, target, help)->type_name("")->group("Arguments");
  state_->app.name(state_->app.get_name() + " [" + name + "]");
}

void Flags::group(const std::string& title) { state_->current_group = title; }

std::vector<std::string> Flags::expand(const std::vector<std::string>& arguments) const {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto alias = state_->aliases.find(name);
    result.push_back(alias == state_->aliases.end() ? argument
                                                    : alias->second + argument.substr(name.size()));
    const auto known = state_->takes_value.find(name);
    const bool value_follows =
        known != state_->takes_value.end() && known->second && equals == std::string::npos;
    if (value_follows && i + 1 < arguments.size())
      result.push_back(arguments[++i]);  // a value may look like a flag
  }
  return result;
}

bool Flags::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> expanded = expand(arguments);
  std::reverse(expanded.begin(), expanded.end());  // as CLI11 takes them
  state_->app.set_help_flag("-h,--help", "Shows this")->group("Other");
  try {
    state_->app.parse(std::move(expanded));
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ExtrasError& e) {
    const std::vector<std::string> extra = state_->app.remaining();
    const auto flag =
        std::find_if(extra.begin(), extra.end(), [](const auto& x) { return x.starts_with('-'); });
    if (flag != extra.end()) throw UsageError("there is no flag " + *flag);
    throw UsageError("'" + extra.front() + "' is one argument too many");
  } catch (const CLI::ConversionError& e) {
    std::string what = e.what();  // "Could not convert: --threads = abc"
    if (const size_t flag = what.find("--"); flag != std::string::npos) what.erase(0, flag);
    throw UsageError(what + ": needs a number");
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string what = e.what();  // "--threads: 1 required N missing"
    throw UsageError(what.substr(0, what.find(':')) + ": needs a value after it");
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  return true;
}

std::string Flags::help()
    const {  // less what CLI11 puts in: second blank lines, the value of a --no- flag
  std::string text = state_->app.help();
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"\n\n\n", "\n\n"}, {"{false}", "       "}}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
      text.replace(at, from.size(), to);
  }
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

}  // namespace assay::cli
