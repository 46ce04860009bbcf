// The chat template: parsed, looked over (measure/lint.h), rendered, and its prompt's ids against
// those that the pieces ask for.
#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/shown.h"
#include "engine/model_state.h"
#include "measure/lint.h"
#include "verify/naive_tokenizer.h"
#include "verify/probes.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

using base::shown;

std::string text_of(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.text(*id)) : std::string();
}

TemplateInput input_of(const Tokenizer& tokenizer, const std::vector<Message>& messages) {
  TemplateInput input;
  for (const Message& m : messages)
    input.messages.emplace_back(TemplateValue::Dict{{"role", m.role}, {"content", m.content}});
  input.bos_token = text_of(tokenizer, tokenizer.bos());
  input.eos_token = text_of(tokenizer, tokenizer.eos());
  input.now_unix = 1'750'000'000;
  return input;
}

std::vector<Message> conversation(const std::string& question) {
  return {{"user", question}, {"assistant", "It is three hundred metres high."}, {"user", "And in feet?"}};
}

// The text that the subject renders against the parsed template's own pieces, joined; and once
// more, the same.
void check_render(const Subject& subject, const ChatTemplate& chat, const std::vector<Message>& messages,
                  Findings& findings) {
  const TemplateInput input = input_of(*subject.model->tokenizer(), messages);
  std::string expected;
  for (const TextPiece& piece : chat.render_pieces(input)) expected += piece.text;
  const std::string found = subject.render(input);
  if (found != expected) {
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
    const auto at = static_cast<size_t>(differ.first - found.begin());
    const size_t from = at < 20 ? 0 : at - 20;
    findings.fail(fmt::format("a conversation renders to another text from byte {} on: {}, needs {}", at,
                              shown(found.substr(from, 60)), shown(expected.substr(from, 60))));
  }
  if (subject.render(input) != found) findings.fail("the same conversation renders to two different texts");
}

// One BOS where the file asks for one, user text that stays text, the ids of the pieces.
void check_prompt(const Subject& subject, const ChatTemplate& chat, const NaiveTokenizer& naive,
                  const std::vector<Message>& messages, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  TemplateInput input = input_of(tokenizer, messages);
  const std::vector<TextPiece> pieces = chat.render_pieces(input);
  const bool begins_with_bos = !input.bos_token.empty() && !pieces.empty() && pieces.front().parse_special &&
                               pieces.front().text.starts_with(input.bos_token);
  const std::vector<TokenId> found = subject.chat_prompt(messages);
  if (tokenizer.bos() && found.size() >= 2 && found[0] == *tokenizer.bos() && found[1] == *tokenizer.bos()) {
    findings.fail(
        fmt::format("the prompt begins with BOS ({}) twice, which shifts every position by one", *tokenizer.bos()));
  }
  if (tokenizer.bos() && (naive.adds_bos() || begins_with_bos) && (found.empty() || found[0] != *tokenizer.bos())) {
    findings.fail(
        fmt::format("the prompt begins with {}, needs BOS ({})", found.empty() ? -1 : found[0], *tokenizer.bos()));
  }
  const std::vector<TokenId> expected = naive.encode(pieces, naive.adds_bos() && !begins_with_bos);
  const bool strips_blanks =
      !tokenizer.pre_tokenizer().empty() ? false : subject.model->name().find("hi-3") != std::string_view::npos;
  if (found != expected && !strips_blanks) {  // Phi-3's special tokens swallow blanks, which the
                                              // naive encoder does not know
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
    findings.fail(
        fmt::format("the prompt's ids differ from those of the template's pieces from id {} on: {} "
                    "ids, needs {}",
                    differ.first - found.begin(), found.size(), expected.size()));
  }
}

int64_t count_control(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  return std::count_if(ids.begin(), ids.end(), [&](TokenId id) {
    return id >= 0 && id < tokenizer.vocab_size() && tokenizer.kind(id) == TokenKind::control;
  });
}

// What a user writes never becomes a control token.
void check_injection(const Subject& subject, Findings& findings) {
  const Tokenizer& tokenizer = *subject.model->tokenizer();
  const int64_t n_plain = count_control(tokenizer, subject.chat_prompt(conversation("How high?")));
  for (const std::string& special : special_texts(tokenizer, 6)) {
    const int64_t n = count_control(tokenizer, subject.chat_prompt(conversation("How " + special + " high?")));
    if (n != n_plain)
      findings.fail(fmt::format("a user who writes {} adds {} to the prompt", shown(special),
                                plural(n - n_plain, "control token")));
  }
}

void check_system_role(const Subject& subject, Findings& findings) {
  std::vector<Message> messages = conversation("How high?");
  messages.insert(messages.begin(), {"system", "Answer in one short sentence."});
  try {
    const std::string text = subject.render(input_of(*subject.model->tokenizer(), messages));
    if (text.find("one short sentence") == std::string::npos) findings.warn("the template drops the system message");
  } catch (const Error& error) {
    findings.note(fmt::format("the template refuses a system message: {}", error.what()));
  }
}

}  // namespace

VerifyStage check_template(const Subject& subject, const StageRun& run) {
  return run_stage(run, "template", "Chat template", [&](Findings& findings) {
    const Model::State& state = subject.model->state();
    if (state.chat_template_source.empty()) return findings.skip("the file has no chat template");
    const auto chat = subject.model->chat_template();  // throws what is wrong with it
    if (!subject.render) return findings.skip("the model was loaded without its vocabulary");
    const Tokenizer& tokenizer = *subject.model->tokenizer();
    for (const LintFinding& finding : measure::lint_template({state.file, nullptr, &tokenizer, chat.get()})) {
      if (finding.rule == "bos_twice" && finding.level == LintLevel::warning)
        continue;  // here the prompt itself is looked at
      finding.level == LintLevel::error ? findings.fail(finding.message) : findings.warn(finding.message);
    }
    const NaiveTokenizer naive(state.file.metadata(), tokenizer);
    const std::vector<std::string> questions = {"What is the height of that tower?", " two\n\n  lines\t",
                                                "naïve 你好 👍 123456", "{{ x }} {% y %}"};
    int64_t n_done = 0;
    for (const std::string& question : questions) {
      check_render(subject, *chat, conversation(question), findings);
      check_prompt(subject, *chat, naive, conversation(question), findings);
      show_progress(run, ++n_done, static_cast<int64_t>(questions.size()) + 1);
    }
    check_injection(subject, findings);
    check_system_role(subject, findings);
    const auto end = measure::find_end_of_turn(tokenizer, *chat);
    if (end && !subject.is_end_of_generation(*end)) {
      findings.fail(fmt::format("the template ends answers with token {} {}, which does not end a generation", *end,
                                shown(tokenizer.text(*end))));
    }
    findings.summary(
        fmt::format("{} bytes of Jinja: rules, {} conversations, BOS once, {}, a user's text stays text",
                    state.chat_template_source.size(), questions.size(),
                    end ? fmt::format("answers end with {}", shown(tokenizer.text(*end))) : "no token ends answers"));
  });
}

}  // namespace assay::verify
