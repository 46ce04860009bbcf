// Answers parted by their marks of reasoning, whole and in pieces.
#include "assay/reasoning.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/sampling/after_reasoning.h"
#include "support/shared_data.h"

namespace assay {
namespace {

const ReasoningMarks kThink = {"<think>", "</think>"};

struct Answered {
  const char* text;
  bool is_open;
  const char* reasoning;
  const char* answer;
};

const Answered kCases[] = {
    {"<think>\nIt is 4.\n</think>\n\nFour.", false, "It is 4.", "Four."},
    {"\n <think>a</think>b", false, "a", "b"},
    {"Hm, two and two.\n</think>\nFour.\n", true, "Hm, two and two.", "Four.\n"},
    {"<think>\n\n</think>\n\nFour.", false, "", "Four."},
    {"No block, <think>not one</think> here.", false, "", "No block, <think>not one</think> here."},
    {"  Blanks stay.", false, "", "  Blanks stay."},
    {"<thin ice>", false, "", "<thin ice>"},
    {"<think>never closed </thin", false, "never closed </thin", ""},
    {"never closed  \n", true, "never closed", ""},
    {"a </ b </thinker> c</think>d <think> e", true, "a </ b </thinker> c", "d <think> e"},
    {"", false, "", ""},
    {"<thi", false, "", "<thi"},
    {"<think>a</think>b</think>c", false, "a", "b</think>c"},
};

TEST(Reasoning, PartsAnAnswerHoweverItIsCut) {
  for (const Answered& c : kCases) {
    const ReasoningSplitter::Part whole = split_reasoning(kThink, c.is_open, c.text);
    EXPECT_EQ(whole.reasoning, c.reasoning) << c.text;
    EXPECT_EQ(whole.text, c.answer) << c.text;
    for (size_t step = 1; step < 10; ++step) {
      ReasoningSplitter splitter(kThink, c.is_open);
      std::string reasoning, answer;
      const std::string_view text = c.text;
      for (size_t i = 0; i < text.size(); i += step) {
        const ReasoningSplitter::Part part = splitter.push(text.substr(i, step));
        reasoning += part.reasoning;
        answer += part.text;
      }
      const ReasoningSplitter::Part rest = splitter.finish();
      EXPECT_EQ(reasoning + rest.reasoning, c.reasoning) << c.text << " by " << step;
      EXPECT_EQ(answer + rest.text, c.answer) << c.text << " by " << step;
    }
  }
}

TEST(Reasoning, ShowsWhatIsCertainAtOnce) {
  ReasoningSplitter splitter(kThink, false);
  EXPECT_EQ(splitter.push("<think>").reasoning, "");
  EXPECT_TRUE(splitter.is_open());
  EXPECT_EQ(splitter.push("One").reasoning, "One");
  EXPECT_EQ(splitter.push(" two ").reasoning, " two");
  EXPECT_EQ(splitter.push("</think").reasoning, "");
  EXPECT_EQ(splitter.push(">\n\nThree").text, "Three");
  EXPECT_FALSE(splitter.is_open());
}

TEST(Reasoning, MarksThatAreControlTokensPartAnAnswerToo) {
  const std::string path = test::shared("goldens/tiny/llama.gguf").string();
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path);
  const Tokenizer& tokenizer = *model->tokenizer();
  ASSERT_EQ(tokenizer.kind(*tokenizer.find("<s>")), TokenKind::control);
  const ReasoningMarks marks = {"<s>", "</s>"};  // made up: the control tokens that this vocabulary has
  SchedulerOptions options;
  options.context.n_ctx = 128;
  options.context.n_threads = 1;
  Scheduler scheduler(model, options);
  Request request;
  request.generate.n_predict = 20;
  request.generate.stop_at_end = false;
  request.prompt = tokenizer.encode("Hi <s>", {.parse_special = true, .add_bos = {}, .add_eos = false});
  std::string shown;
  ReasoningOptions reasoning{marks, 6, [&](std::string_view text) { shown += text; }};
  const Generation g = run_parted(scheduler, request, reasoning);
  ASSERT_GE(g.ids.size(), 8u);
  EXPECT_EQ(g.ids[6], *tokenizer.find("</s>"));  // the budget was spent
  EXPECT_EQ(g.text.find("</s>"), std::string::npos);
  EXPECT_EQ(g.reasoning, shown);
  EXPECT_FALSE(g.text.empty());
  const Generation whole = run_request(scheduler, request);
  EXPECT_EQ(std::vector(whole.ids.begin(), whole.ids.begin() + 6), std::vector(g.ids.begin(), g.ids.begin() + 6));
}

bool allows(std::span<const uint64_t> words, TokenId id) {
  const auto i = static_cast<size_t>(id);
  return (words[i / 64] >> (i % 64) & 1) != 0;
}

// A closing mark that several tokens spell: what stands behind it is held, whoever spelled it and however.
TEST(Reasoning, AConstraintBeginsBehindAMarkOfSeveralTokens) {
  const std::string path = test::shared("goldens/tiny/llama.gguf").string();
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path);
  const auto& tokenizer = model->tokenizer();
  const auto ids = [&](const std::string& text) {
    return tokenizer->encode(text, {.parse_special = true, .add_bos = false, .add_eos = false});
  };
  const TokenId a = *tokenizer->find("<0x61>"), b = *tokenizer->find("<0x62>"), other = *tokenizer->find("<0x63>");
  std::vector<uint64_t> only_b((static_cast<size_t>(tokenizer->vocab_size()) + 63) / 64);
  only_b[static_cast<size_t>(b) / 64] = uint64_t{1} << (b % 64);
  const TokenMask rest = [only_b](std::span<const TokenId>) { return std::span<const uint64_t>(only_b); };
  const ReasoningMarks marks = {"<think>", "ca"};
  ASSERT_GT(ids(marks.close).size(), 1u);
  const auto mask =
      engine::after_reasoning(tokenizer, marks, true, -1, rest, engine::tokens_with_more(*tokenizer, marks));
  std::vector<TokenId> answer;
  const auto behind = [&](std::vector<TokenId> more) {
    answer.insert(answer.end(), more.begin(), more.end());
    return mask(answer);
  };
  EXPECT_TRUE(allows(mask({}), other));
  for (const TokenId end : tokenizer->end_of_generation()) EXPECT_FALSE(allows(mask({}), end));
  EXPECT_TRUE(allows(behind({a, b, other}), a));  // "abc"
  const auto held = behind({a});                  // "abca"
  EXPECT_TRUE(allows(held, b));
  EXPECT_FALSE(allows(held, a));
  EXPECT_FALSE(allows(held, other));

  // The budget: two tokens, then the mark's own, one after the other.
  const auto cut =
      engine::after_reasoning(tokenizer, marks, true, 2, rest, engine::tokens_with_more(*tokenizer, marks));
  std::vector<TokenId> so_far = {b, b};
  for (const TokenId forced : ids(marks.close)) {
    const auto words = cut(so_far);
    EXPECT_TRUE(allows(words, forced));
    EXPECT_FALSE(allows(words, forced == a ? b : a));
    so_far.push_back(forced);
  }
  EXPECT_TRUE(allows(cut(so_far), b));
  EXPECT_FALSE(allows(cut(so_far), a));
}

TEST(Reasoning, MarksComeFromTheTemplateElseFromTheVocabulary) {
  const std::string path = test::shared("goldens/tiny/llama.gguf").string();
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path);
  EXPECT_FALSE(find_reasoning_marks(*model, "{{ messages }}").has_value());  // its vocabulary has none
  EXPECT_EQ(find_reasoning_marks(*model, "{{ content.split('</think>')[-1] }}")->open, "<think>");
  EXPECT_EQ(find_reasoning_marks(*model, "... [THINK]x[/THINK] ...")->close, "[/THINK]");
  const Tokenizer& tokenizer = *model->tokenizer();
  const auto opens = [&](const char* prompt) { return opens_reasoning(tokenizer, kThink, tokenizer.encode(prompt)); };
  EXPECT_TRUE(opens("user: x\nassistant: <think>\n"));
  EXPECT_TRUE(opens("<think>"));
  EXPECT_FALSE(opens("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens("user: <think>\nassistant: "));
}

}  // namespace
}  // namespace assay
