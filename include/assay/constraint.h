// Answers that keep to a form: a JSON Schema or a grammar in llama.cpp's GBNF, compiled once and then asked before each
// token which ones may come. What an answer may be is decided exactly; the model's logits of the tokens that may come
// stay as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "assay/error.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "assay/tokenizer.h"

namespace assay {

// Something in a schema that is not enforced, or that is wrong. Nothing of a schema is ever left out in silence.
struct SchemaProblem {
  std::string pointer;  // JSON pointer (RFC 6901) of the keyword or the value; empty: the schema as a whole
  std::string message;
};

// What compiling a schema ends with; the message has the first problem and its pointer.
struct SchemaError : Error {
  explicit SchemaError(std::vector<SchemaProblem> all);
  std::vector<SchemaProblem> problems;  // at least one
};

class Constraint {  // any number of threads at a time
 public:
  // JSON text whose value is a schema (an object or a boolean): the whole answer is a value that it holds of.
  // docs/structured-output.md has the keywords. SchemaError for a schema with anything else in it, Error(bad_request)
  // for what is no JSON or beyond a limit.
  static std::shared_ptr<const Constraint> from_schema(std::string_view json);
  // GBNF: the whole answer is what the rule `root` says. Error(bad_request) with the line.
  static std::shared_ptr<const Constraint> from_grammar(std::string_view gbnf);
  // An object of any members, 16 values deep at most.
  static std::shared_ptr<const Constraint> any_object();

  bool accepts(std::string_view text) const;  // as a whole answer

  struct State;
  explicit Constraint(std::unique_ptr<const State> state);  // for the library itself
  ~Constraint();
  const State& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

// Everything that is wrong with a schema; nothing: from_schema takes it. Error(bad_request) as from_schema.
std::vector<SchemaProblem> check_schema(std::string_view json);

// The tokens of a model in the order of their bytes. Made once for a model and shared by all its answers.
class TokenTree {  // any number of threads at a time
 public:
  explicit TokenTree(const Model& model);  // Error(bad_request) for a model without a tokenizer
  TokenTree(const Tokenizer& tokenizer,
            int64_t vocab_size);  // vocab_size: of the logits, which may be more than there are tokens
  ~TokenTree();

  struct State;
  const State& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

// For GenerateOptions::mask: each draw is of the tokens with which the answer can still become what is asked for, and
// of an end-of-generation token exactly where it is that already. A copy is the same answer; another answer needs
// another call. An answer without a token left to choose from ends with an Error.
TokenMask constrain(std::shared_ptr<const Constraint> constraint, std::shared_ptr<const TokenTree> tokens);

}  // namespace assay
