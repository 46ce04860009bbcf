// The flags of one command: a thin layer over CLI11 that adds llama.cpp's short flags of several
// letters (-ub, -ctk, -sys) and an environment variable for each flag (--top-k reads ASSAY_TOP_K).
// What the command line says wins over the environment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace assay::cli {

// A wrong call: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Flags {
 public:
  enum class Environment { read, ignored };
  Flags(const std::string& command, const std::string& summary, const std::string& examples,
        Environment environment = Environment::read);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // names: "-c,--ctx-size", the long one first where there are several of them: its name is the
  // variable's.
  void value(const std::string& names, std::string& target, const std::string& kind,
             const std::string& help);
  void value(const std::string& names, int64_t& target, const std::string& kind,
             const std::string& help);
  void value(const std::string& names, double& target, const std::string& kind,
             const std::string& help);
  void value(const std::string& names, std::optional<std::string>& target, const std::string& kind,
             const std::string& help);
  void value(const std::string& names, std::optional<int64_t>& target, const std::string& kind,
             const std::string& help);
  void value(const std::string& names, std::optional<double>& target, const std::string& kind,
             const std::string& help);
  void values(const std::string& names, std::vector<std::string>& target, const std::string& kind,
              const std::string& help);  // repeatable
  void on(const std::string& names, bool& target, const std::string& help);
  void on_off(const std::string& on_name, const std::string& off_name, std::optional<bool>& target,
              const std::string& help);
  void positional(const std::string& name, std::string& target, const std::string& help);
  void group(const std::string& title);  // heads the flags that follow in --help

  // UsageError for what is no flag or no value of its kind. False where --help was asked for;
  // help() is then to be shown.
  bool parse(const std::vector<std::string>& arguments);
  std::string help() const;

 private:
  std::string variable(const std::string& names) const;  // empty where the environment is not read
  template <class T>
  void add(const std::string& names, T& target, const std::string& kind, const std::string& help);
  std::string split_names(const std::string& names, bool takes_value);
  std::vector<std::string> expand(const std::vector<std::string>& arguments) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::cli
