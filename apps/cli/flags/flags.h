// The flags of one command, by the rules that people who run models know: a flag is a word of its own and its value is
// the next word (or stands behind "=" of a long flag), so that -ub, -ctk and -sys are names and never -u, -c or -s with
// something glued on. The last of two counts. Each long name has an environment variable (--top-k reads ASSAY_TOP_K),
// which any flag that says the same outranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "flags/flag_table.h"

namespace assay::cli {

// How many letters must change to make one word of the other.
size_t distance(const std::string& a, const std::string& b);

// A wrong call: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Given to a command in place of arguments, it makes Flags::parse throw the command's CommandFacts; nobody can type it.
const std::vector<std::string>& describe_arguments();

class Flags {
 public:
  // What may be said of a flag where it is declared.
  class Declared {
   public:
    Declared& one_of(std::vector<std::string> choices);    // else UsageError that lists them
    Declared& between(int64_t smallest, int64_t largest);  // of a whole number
    Declared& at_least(int64_t smallest);
    Declared& with_part(char mark);              // each choice also with more behind this mark, which the command reads
    Declared& shows(std::string default_value);  // in help, where the target does not hold it

   private:
    friend class Flags;
    struct State;
    explicit Declared(State& state) : state_(&state) {}
    State* state_;
  };

  enum class Environment { read, ignored };
  Flags(const std::string& command, const std::string& summary, const std::string& examples,
        Environment environment = Environment::read);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // names: "-c,--ctx-size". What the target holds is the default that help shows.
  Declared value(const std::string& names, std::string& target, const std::string& kind, const std::string& help);
  Declared value(const std::string& names, int64_t& target, const std::string& kind, const std::string& help);
  Declared value(const std::string& names, double& target, const std::string& kind, const std::string& help);
  Declared value(const std::string& names, std::optional<std::string>& target, const std::string& kind,
                 const std::string& help);
  Declared value(const std::string& names, std::optional<int64_t>& target, const std::string& kind,
                 const std::string& help);
  Declared value(const std::string& names, std::optional<double>& target, const std::string& kind,
                 const std::string& help);
  // From 0 to 2^64 - 1; -1 empties it.
  Declared value(const std::string& names, std::optional<uint64_t>& target, const std::string& kind,
                 const std::string& help);
  Declared values(const std::string& names, std::vector<std::string>& target, const std::string& kind,
                  const std::string& help);  // repeatable
  // A value that may be left out: then it is the first choice.
  Declared choice(const std::string& names, std::string& target, const std::string& kind,
                  std::vector<std::string> choices, const std::string& help);
  void on(const std::string& names, bool& target, const std::string& help);
  void on_off(const std::string& on_names, const std::string& off_names, std::optional<bool>& target,
              const std::string& help);
  // Accepted without effect, unless the command has declared the name: with no value, one, or one of the choices or
  // none.
  void habit(const std::string& names, const std::string& kind = {}, std::vector<std::string> choices = {});
  // A word without a flag, in the order of declaration. instead: the flags that say the same, "-m,-hf"; where one is
  // given, the word is another's.
  void positional(const std::string& name, std::string& target, const std::string& help,
                  const std::string& instead = {});
  // All the words that are left, "NAME...".
  void positionals(const std::string& name, std::vector<std::string>& target, const std::string& help);
  // Of these flags and arguments, one at most; each outranks the variables of the others.
  void exclusive(const std::vector<std::string>& names);
  void group(const std::string& title);  // heads the flags that follow in --help

  // UsageError for what is no flag or no value of its kind. False where --help was asked for; help() is then to be
  // shown.
  bool parse(const std::vector<std::string>& arguments);
  std::string help() const;
  std::vector<std::string> long_names() const;  // of all flags

 private:
  struct Word;
  struct State;
  Declared::State& declare(const std::string& names, const std::string& kind, const std::string& help);
  static void assign(Declared::State& flag, const std::string& name, const std::string& value);
  [[noreturn]] void refuse(const std::string& word) const;
  void take_words(const std::vector<std::string>& arguments, std::vector<Word>& words,
                  std::vector<std::string>& loose) const;
  void place(const std::vector<std::string>& loose);
  std::string flag_that_takes(const std::string& word) const;
  void read_environment();
  void check_exclusive() const;
  CommandFacts facts() const;

  std::unique_ptr<State> state_;
};

}  // namespace assay::cli
