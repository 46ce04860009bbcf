// Conversations with the real models: the prompt, what stays cached between turns, sessions as
// files.
#include "assay/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/error.h"
#include "support/shared_data.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

ChatSession make_session(const std::string& path, std::string system = {}) {
  const auto model = Model::load(path);
  SchedulerOptions options;
  options.context.n_ctx = 512;
  options.context.n_threads = 1;
  GenerateOptions generate;
  generate.n_predict = 6;
  generate.sampling.temperature = 1.5;
  return ChatSession(std::make_unique<Scheduler>(model, options), require_chat_template(*model), generate,
                     std::move(system));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    return error.what();
  }
  return "no error";
}

TEST(Session, KeepsWhatTurnsHaveInCommon) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  ChatSession session = make_session(test::smollm2().string(), "Be brief.");
  const Generation first = session.say("Name a colour.");
  EXPECT_EQ(first.n_prompt_cached, 0);
  EXPECT_EQ(first.ids.size(), 6u);
  const Generation second = session.say("And another one?");
  EXPECT_GE(second.n_prompt_cached, first.n_prompt);
  ASSERT_EQ(session.messages().size(), 4u);
  EXPECT_EQ(session.messages()[1].content, first.text);
  const Generation again = session.regenerate();
  EXPECT_EQ(again.n_prompt, second.n_prompt);
  EXPECT_EQ(again.n_prompt_cached, second.n_prompt - 1);
  EXPECT_NE(again.ids, second.ids);  // another request, so another draw
  EXPECT_EQ(session.messages().size(), 4u);
  session.clear();
  EXPECT_THAT(refusal([&] { session.regenerate(); }), HasSubstr("no message"));
}

TEST(Session, AnErrorLeavesTheConversationAsItWas) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  ChatSession session = make_session(test::smollm2().string());
  session.say("Hi");
  std::string flood;
  for (int i = 0; i < 600; ++i) flood += "word ";
  EXPECT_THAT(refusal([&] { session.say(flood); }), HasSubstr("the context holds 512"));
  EXPECT_THAT(refusal([&] { session.say("\xFF"); }), HasSubstr("not UTF-8"));
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_FALSE(session.say("Still there?").ids.empty());
}

TEST(Session, SavesAndLoads) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  ChatSession session = make_session(test::smollm2().string(), "Be \"brief\".");
  session.say("Hi\n\u00E9");
  const std::string saved = session.save();
  ChatSession other = make_session(test::smollm2().string());
  other.load(saved);
  EXPECT_EQ(other.save(), saved);
  for (const char* bad : {"", "{", "[]", "{\"assay_session\": 2, \"messages\": []}", "{\"assay_session\": 1}",
                          "{\"assay_session\": 1, \"messages\": [{\"role\": \"user\"}]}",
                          "{\"assay_session\": 1, \"messages\": [{\"role\": \"wizard\", \"content\": \"x\"}]}"}) {
    const std::string why = refusal([&] { other.load(bad); });
    EXPECT_NE(why, "no error") << bad;
    EXPECT_EQ(why.find("boost"), std::string::npos) << why;
    EXPECT_EQ(other.save(), saved);
  }
}

TEST(ChatPrompt, BeginsWithOneBosWhereTheFileAsksForIt) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  const auto model = Model::load(test::gemma3().string());
  const auto bos = model->tokenizer()->bos();
  ASSERT_TRUE(bos.has_value());
  const std::vector<Message> messages = {{"user", "<bos>Hi<start_of_turn>"}};
  const auto with = ChatTemplate::parse("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto ids = chat_prompt(*model, *with, messages);
  EXPECT_EQ(ids.front(), *bos);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *bos), 1);  // the user's "<bos>" is text
  const auto plain = ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto without = chat_prompt(*model, *plain, {{"user", "Hi"}});
  EXPECT_EQ(without.front(), *bos);  // the template writes none, the file asks for one
}

TEST(ChatPrompt, ControlTokensInAMessageStayText) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  const auto model = Model::load(test::smollm2().string());
  const auto end = model->tokenizer()->find("<|im_end|>");
  ASSERT_TRUE(end.has_value());
  const auto count = [&](const std::string& text) {
    const auto ids = chat_prompt(*model, *require_chat_template(*model), {{"system", "x"}, {"user", text}});
    return std::count(ids.begin(), ids.end(), *end);
  };
  EXPECT_EQ(count("<|im_end|><|im_end|>"), count("hello"));
}

TEST(ChatTemplateChoice, AModelWithoutOneSaysWhatToDo) {
  const auto path = test::shared("goldens/tiny/llama.gguf");
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path.string(), {.tokenizer = false});
  EXPECT_THAT(refusal([&] { require_chat_template(*model); }), HasSubstr("--chat-template"));
  EXPECT_NE(require_chat_template(*model, "{{ messages }}"), nullptr);
  EXPECT_THAT(refusal([&] { require_chat_template(*model, "{{ messages"); }), HasSubstr("without its end"));
}

}  // namespace
}  // namespace assay
