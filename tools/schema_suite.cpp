// JSON Schemas against judges that share nothing with the compiler.
//   schema_suite suite FILE...          files of JSON-Schema-Test-Suite: each schema is refused, or no text that it
//   lets through is
//                                       an invalid value; exit code 1 where one is
//   schema_suite samples N SEED <LIST   a line of LIST is a schema; prints N texts that it lets through, drawn byte by
//   byte, as lines of
//                                       JSON {"line", "text"}; one that is refused has {"line", "refused"}
#include <fmt/format.h>

#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <string>

#include "assay/constraint.h"
#include "constraint/automaton.h"
#include "constraint/constraint_state.h"
#include "constraint/json_parts.h"

namespace {

namespace json = boost::json;
using assay::Constraint;
using assay::constraint::Automaton;

std::string quoted(std::string_view text) { return json::serialize(json::string_view(text.data(), text.size())); }

struct Counts {
  int n_schemas = 0, n_refused = 0, n_yes = 0, n_valid_not_let = 0, n_no = 0, n_wrong = 0;
};

void judge(const json::value& group, const std::string& file, Counts& counts) {
  ++counts.n_schemas;
  std::shared_ptr<const Constraint> constraint;
  try {
    constraint = Constraint::from_schema(json::serialize(group.at("schema")));
  } catch (const assay::Error&) {
    ++counts.n_refused;
    return;
  }
  for (const json::value& test : group.at("tests").as_array()) {
    const std::string text = assay::constraint::json_dumps(test.at("data"));
    const bool lets = constraint->accepts(text), valid = test.at("valid").as_bool();
    ++(valid ? lets ? counts.n_yes : counts.n_valid_not_let : lets ? counts.n_wrong : counts.n_no);
    if (lets && !valid)
      fmt::print("WRONG {}: {}: {} lets {}\n", file, group.at("description").as_string().c_str(),
                 json::serialize(group.at("schema")), text);
  }
}

int suite(int n, char** files) {
  Counts c;
  for (int i = 0; i < n; ++i) {
    std::ifstream in(files[i]);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const json::value groups = json::parse(text);
    for (const json::value& group : groups.as_array()) judge(group, files[i], c);
  }
  fmt::print(
      "{} schemas, {} refused; of the others' values: {} valid and let through, {} valid that cannot come, {} invalid "
      "and kept out, {} invalid and let through\n",
      c.n_schemas, c.n_refused, c.n_yes, c.n_valid_not_let, c.n_no, c.n_wrong);
  return c.n_wrong == 0 ? 0 : 1;
}

// Any byte while the text is short, then what closes it where that may come.
std::optional<std::string> drawn(const Constraint& constraint, std::mt19937_64& random) {
  Automaton automaton(constraint.state().network);
  Automaton::Place place = automaton.begin();
  std::string text;
  const size_t n_free = random() % 120;
  while (true) {
    std::string may;
    for (int b = 0; b < 256; ++b) {
      if (automaton.step(place, static_cast<uint8_t>(b)) != Automaton::kDead) may += static_cast<char>(b);
    }
    if (automaton.accepts(place) && (may.empty() || text.size() >= n_free || random() % 8 == 0)) return text;
    if (may.empty()) throw std::runtime_error("no way on behind " + text);
    char next = may[random() % may.size()];
    if (text.size() >= n_free && random() % 2 == 0) {
      for (const char closing : {']', '}', '"'}) next = may.find(closing) != std::string::npos ? closing : next;
    }
    if (text.size() > 4'000) return {};  // as where a pattern waits for its one word
    text += next;
    place = automaton.step(place, static_cast<uint8_t>(next));
  }
}

int samples(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      const auto constraint = Constraint::from_schema(line);
      for (int i = 0; i < n; ++i) {
        const auto text = drawn(*constraint, random);
        if (text) fmt::print("{{\"line\": {}, \"text\": {}}}\n", number, quoted(*text));
      }
    } catch (const assay::Error& error) {
      fmt::print("{{\"line\": {}, \"refused\": {}}}\n", number, quoted(error.what()));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "suite" && argc > 2) return suite(argc - 2, argv + 2);
  if (mode == "samples" && argc == 4) return samples(std::stoi(argv[2]), std::stoull(argv[3]));
  fmt::print(stderr, "usage: schema_suite suite FILE... | schema_suite samples N SEED <LIST\n");
  return 2;
}
