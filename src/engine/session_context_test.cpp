// Conversations that outgrow their context, are cut short or taken back, on a tiny model with a vocabulary of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "assay/error.h"
#include "assay/session.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

class SessionContext : public ::testing::Test {
 protected:
  // Some 20 tokens a turn beside the answer.
  static constexpr const char* kTemplate =
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ mark|default('') }}\n{% endfor %}a:";

  ChatSession make(const ContextOptions& more = {}) {
    if (!model_) model_ = Model::load(path_);
    SchedulerOptions options;
    options.context = more;
    options.context.n_ctx = 128;
    if (options.context.n_threads == 0) options.context.n_threads = 1;
    GenerateOptions generate;
    generate.n_predict = 12;
    generate.ignore_eos = true;
    generate.sampling.temperature = 0;
    for (TokenId id = 0; id < model_->vocab_size(); ++id) {  // letters, so that an answer read again has as many tokens
      const std::string piece = model_->tokenizer()->piece(id);
      if (piece.size() == 1 && piece[0] >= 'a' && piece[0] <= 'z') generate.sampling.logit_bias.push_back({id, 50});
    }
    return ChatSession(std::make_unique<Scheduler>(model_, options), ChatTemplate::parse(kTemplate), generate,
                       "Be brief.");
  }
  static std::string message(int i) { return "message " + std::to_string(i); }

  const std::string path_ = test::shared("goldens/tiny/llama.gguf").string();
  std::shared_ptr<const Model> model_;
};

TEST_F(SessionContext, DropsItsOldestTurnsAndAnswersAsIfTheyHadNeverBeen) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  std::vector<DroppedTurns> drops;
  session.set_when_full(WhenFull::drop_oldest, [&](const DroppedTurns& d) { drops.push_back(d); });
  for (int i = 0; i < 12; ++i) {
    const Generation g = session.say(message(i));
    EXPECT_EQ(g.ids.size(), 12u) << i;
    EXPECT_FALSE(g.context_full) << i;
  }
  ASSERT_FALSE(drops.empty());
  EXPECT_LT(drops.size(), 8u);  // room is made for some turns at a time
  int64_t n_messages = 0;
  for (const DroppedTurns& d : drops) {
    n_messages += d.n_messages;
    EXPECT_GT(d.n_tokens, 0);
  }
  EXPECT_EQ(session.messages().size(), 24u);  // all are there to be saved
  EXPECT_EQ(session.n_messages_dropped(), n_messages);
  const auto dropped = static_cast<size_t>(n_messages);
  ASSERT_EQ(session.messages()[dropped].role, "user");

  // The next answer, and that of a conversation which begins where this one's prompt does.
  ContextOptions other_way;
  other_way.n_threads = 2;
  other_way.n_ubatch = 7;
  ChatSession fresh = make(other_way);
  json::array messages = {{{"role", "system"}, {"content", "Be brief."}}};
  for (size_t i = dropped; i < 24; ++i) {
    messages.push_back({{"role", session.messages()[i].role}, {"content", session.messages()[i].content}});
  }
  fresh.load(json::serialize(json::object{{"assay_session", 1}, {"messages", messages}}));
  const size_t n_drops = drops.size();
  const Generation next = session.say("x");
  ASSERT_EQ(drops.size(), n_drops) << "choose another number of turns";
  EXPECT_EQ(fresh.say("x").ids, next.ids);
}

TEST_F(SessionContext, StopsWhereItIsToldTo) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  try {
    for (int i = 0; i < 12; ++i) session.say(message(i));
    FAIL() << "no end";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request);
    EXPECT_THAT(e.what(), HasSubstr("the context holds 128"));
    EXPECT_TRUE(session.did_not_fit());
  }
  EXPECT_EQ(session.n_messages_dropped(), 0);
}

TEST_F(SessionContext, DropsTurnsInTheMiddleOfAnAnswer) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  session.set_when_full(WhenFull::drop_oldest);
  session.say(message(0));
  session.options().n_predict = 80;
  const Generation longer = session.say(message(1));
  EXPECT_EQ(longer.ids.size(), 80u);
  EXPECT_EQ(session.n_messages_dropped(), 2);
  EXPECT_GT(longer.n_dropped, 20);
  session.options().n_predict = -1;  // nothing is left to drop but the turn itself
  const Generation endless = session.say(message(2));
  EXPECT_TRUE(endless.context_full);
  EXPECT_EQ(session.n_messages_dropped(), 4);
  session.options().n_predict = 5;
  EXPECT_EQ(session.say(message(3)).ids.size(), 5u);  // and that is no dead end
  EXPECT_EQ(session.n_messages_dropped(), 6);
}

TEST_F(SessionContext, AMessageThatCannotFitIsRefusedAndNothingIsLost) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  session.set_when_full(WhenFull::drop_oldest);
  session.say(message(0));
  EXPECT_THROW(session.say(std::string(200, 'x')), Error);
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.n_messages_dropped(), 0);
  EXPECT_EQ(session.say(message(1)).ids.size(), 12u);
}

TEST_F(SessionContext, ACancelBeforeTheFirstTokenLeavesNoEmptyAnswer) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  session.say(message(0));
  const std::vector<Message> before = session.messages();
  EXPECT_EQ(session.say(message(1), {}, [] { return true; }).finish_reason, FinishReason::cancelled);
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.regenerate({}, [] { return true; }).finish_reason, FinishReason::cancelled);
  ASSERT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.messages()[1].content, before[1].content);
  int n_polls = 0;
  const Generation cut = session.say(message(1), {}, [&] { return ++n_polls > 6; });
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
  EXPECT_FALSE(cut.ids.empty());
  EXPECT_EQ(session.messages().size(), 4u);  // as far as it came
}

TEST_F(SessionContext, UndoTakesBackTheLastTurn) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  EXPECT_FALSE(session.undo());
  const Generation first = session.say(message(0));
  session.say(message(1));
  EXPECT_TRUE(session.undo());
  ASSERT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.messages()[1].content, first.text);
  EXPECT_TRUE(session.undo());
  EXPECT_TRUE(session.messages().empty());
  EXPECT_EQ(session.say(message(0)).ids, first.ids);
}

TEST_F(SessionContext, VariablesReachTheTemplate) {
  ASSAY_REQUIRE_FILE(path_);
  ChatSession session = make();
  const Generation plain = session.say(message(0));
  session.undo();
  session.set_template_variables(R"({"mark": "!!!!"})");
  EXPECT_EQ(session.say(message(0)).n_prompt, plain.n_prompt + 8);  // after two messages
}

}  // namespace
}  // namespace assay
