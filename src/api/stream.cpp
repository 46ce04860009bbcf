// See stream.h.
#include "api/stream.h"

#include <fmt/format.h>

#include "api/error.h"
#include "api/response_events.h"

namespace assay::api {
namespace {

std::string event(const std::string& json) { return json.empty() ? json : fmt::format("data: {}\n\n", json); }

using Time = StreamWriter::Time;

// How long a choice took so far.
class Pace {
 public:
  void started(const RequestStarted& started, Time at) {
    began_ = at;
    timings_.n_cached = started.n_prompt_cached;
    timings_.n_prompt = started.n_prompt - started.n_prompt_cached;
  }
  void token(Time at) {
    const auto in_ms = [](Time::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    if (timings_.n_answer++ == 0) {
      drew_first_ = at;
      timings_.prompt_ms = in_ms(at - began_);
    }
    timings_.answer_ms = in_ms(at - drew_first_);
  }
  // Empty, where the request does not ask for it.
  std::string told(const Asked& asked) const { return asked.draft.timings ? timings_member(timings_) : std::string(); }

 private:
  Time began_, drew_first_;
  Timings timings_;
};

// Chat completions and completions.
class ChunkWriter final : public StreamWriter {
 public:
  ChunkWriter(const Api& api, const Asked& asked) : api_(api), asked_(asked) {
    for (size_t i = 0; i < asked.requests.size(); ++i) choices_.push_back({ChoiceReader(asked, i), {}, 0, {}});
  }
  std::string begin() override {
    std::string out;
    for (size_t i = 0; i < choices_.size(); ++i) out += event(api_.chunk_head(asked_, i));
    return out;
  }
  void started(size_t i, const RequestStarted& started, Time at) override { choices_[i].pace.started(started, at); }
  std::string token(size_t i, const RequestToken& token, Time at) override {
    choices_[i].pace.token(at);
    if (token.logprobs) choices_[i].logprobs.push_back(*token.logprobs);
    return told(i, choices_[i].reader.token(token));
  }
  std::string finish(size_t i, const RequestFinished& finished) override {
    std::string out = told(i, choices_[i].reader.finish(finished));
    if (!choices_[i].logprobs.empty()) out += told(i, {{AnswerPiece::Kind::text, ""}});
    if (is_whole(finished)) out += event(api_.chunk_end(asked_, i, choices_[i].reader.choice()));
    return out;
  }
  std::string end(const std::optional<ApiError>& failure) override {
    std::string out;
    if (failure) {
      out = event(error_json(*failure));
    } else if (asked_.draft.include_usage) {
      std::vector<Choice> choices;
      for (const One& one : choices_) choices.push_back(one.reader.choice());
      out = event(api_.chunk_usage(asked_, choices));
    }
    return out + event("[DONE]");
  }

 private:
  struct One {
    ChoiceReader reader;
    std::vector<TokenLogprobs> logprobs;  // of tokens whose text is not certain yet
    size_t n_sent = 0;                    // bytes of text
    Pace pace;
  };
  std::string told(size_t i, const std::vector<AnswerPiece>& pieces) {
    std::string out;
    One& one = choices_[i];
    for (const AnswerPiece& piece : pieces) {
      out += event(api_.chunk(asked_, i, piece, one.logprobs, one.n_sent, one.pace.told(asked_)));
      one.n_sent += piece.text.size();
      one.logprobs.clear();
    }
    return out;
  }

  const Api& api_;
  const Asked& asked_;
  std::vector<One> choices_;
};

// Responses, which have one choice.
class ResponseWriter final : public StreamWriter {
 public:
  ResponseWriter(const Api& api, const Asked& asked) : asked_(asked), reader_(asked, 0), events_(api, asked) {}
  std::string begin() override { return events_.begin(); }
  void started(size_t, const RequestStarted& started, Time at) override { pace_.started(started, at); }
  std::string token(size_t, const RequestToken& token, Time at) override {
    pace_.token(at);
    reader_.token(token);
    return news();
  }
  std::string finish(size_t, const RequestFinished& finished) override {
    reader_.finish(finished);
    const std::string out = news();
    return is_whole(finished) ? out + events_.finish(reader_.choice()) : out;
  }
  std::string end(const std::optional<ApiError>& failure) override {
    return failure ? events_.fail(*failure) : std::string();
  }

 private:
  std::string news() {
    std::string out;
    const std::vector<Choice::Piece>& pieces = reader_.choice().pieces;
    for (; n_told_ < pieces.size(); ++n_told_)
      out += events_.add(pieces[n_told_].piece, pieces[n_told_].logprobs, pace_.told(asked_));
    return out;
  }

  const Asked& asked_;
  ChoiceReader reader_;
  ResponseEvents events_;
  Pace pace_;
  size_t n_told_ = 0;  // of the choice's pieces
};

}  // namespace

bool is_whole(const RequestFinished& finished) noexcept {
  return finished.reason == FinishReason::stop || finished.reason == FinishReason::length;
}

std::unique_ptr<StreamWriter> stream_writer(const Api& api, const Asked& asked) {
  if (asked.where == kResponses) return std::make_unique<ResponseWriter>(api, asked);
  return std::make_unique<ChunkWriter>(api, asked);
}

}  // namespace assay::api
