// Answers parted by their marks of reasoning, whole and in pieces.
#include "assay/reasoning.h"

#include <gtest/gtest.h>

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
