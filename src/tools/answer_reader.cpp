// Answers parted as they come. What an answer is held to (call_constraint) is what is read here; an answer that was not
// held, and breaks off its format, goes on as text.
#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "assay/error.h"
#include "tools/arguments.h"
#include "tools/format.h"

namespace assay {

using tools::begun_at_end;
using tools::Format;
using tools::Part;
using Pieces = std::vector<AnswerPiece>;

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-' || c == '.';
}

void add_text(Pieces& out, AnswerPiece::Kind kind, std::string_view text, size_t i_call = 0) {
  if (text.empty()) return;
  if (!out.empty() && out.back().kind == kind && kind != AnswerPiece::Kind::call && out.back().i_call == i_call) {
    out.back().text += text;
  } else {
    out.push_back({kind, std::string(text), {}, i_call});
  }
}

// Finds the end of a JSON object that comes in pieces.
class ObjectEnd {
 public:
  // How much of the text belongs to it; done() where the end is among it. bad(): it does not begin with {.
  size_t take(std::string_view text) {
    size_t i = 0;
    for (; i < text.size() && !done_; ++i) {
      const char c = text[i];
      if (depth_ == 0 && c != '{') {
        bad_ = true;
        return i;
      }
      if (in_string_) {
        if (escaped_)
          escaped_ = false;
        else if (c == '\\')
          escaped_ = true;
        else if (c == '"')
          in_string_ = false;
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        done_ = --depth_ == 0;
      }
    }
    return i;
  }
  bool done() const { return done_; }
  bool bad() const { return bad_; }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, done_ = false, bad_ = false;
};

// What has come of the answer's calls.
struct Calls {
  size_t n = 0;
  bool are_whole = false;  // the arguments of the last one
};

bool knows(const AnswerReader::Options& options, std::string_view name) {
  return !name.empty() &&
         (options.names.empty() || std::find(options.names.begin(), options.names.end(), name) != options.names.end());
}

// Parts an answer whose calls stand in its text, as a format has them.
class CallReader {
 public:
  // All must outlive it.
  CallReader(const AnswerReader::Options& options, const Format& format, Calls& calls)
      : options_(options), format_(format), calls_(calls) {}

  void push(std::string_view text, Pieces& out) {
    held_ += text;
    while (step(out)) {
    }
  }

  void finish(Pieces& out) {
    const bool is_no_call = place_ == Place::call && !name_is_known_;
    if (is_no_call) held_.insert(0, taken_);  // it may not have become a call
    if (place_ == Place::text || place_ == Place::broken || is_no_call) add_text(out, AnswerPiece::Kind::text, held_);
    held_.clear();
  }

 private:
  enum class Place { text, call, between, after, broken };

  // Takes something off `held_`; false: more is needed.
  bool step(Pieces& out) {
    switch (place_) {
      case Place::text: return find_opening(out);
      case Place::call: return call_step(out);
      case Place::between: return end_or_next(out);
      case Place::after:
        held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
        if (held_.empty()) return false;
        place_ = Place::broken;
        return true;
      case Place::broken:
        add_text(out, AnswerPiece::Kind::text, held_);
        held_.clear();
        return false;
    }
    return false;
  }

  bool find_opening(Pieces& out) {
    const std::string_view opening = format_.opening();
    const std::string_view all = held_;
    if (format_.anchored) {
      const size_t begin = std::min(all.find_first_not_of(kBlanks), all.size());
      const std::string_view rest = all.substr(begin);
      if (rest.size() < opening.size() && opening.starts_with(rest)) return false;
      if (!rest.starts_with(opening)) {
        place_ = Place::broken;
        return true;
      }
      held_.erase(0, begin);
      open_call();
      return true;
    }
    const size_t found = all.find(opening);
    if (found == std::string_view::npos) {
      const size_t sure = all.size() - begun_at_end(all, opening);
      const size_t n = all.substr(0, sure).find_last_not_of(kBlanks) + 1;  // blanks before a call are none of the text
      add_text(out, AnswerPiece::Kind::text, all.substr(0, n));
      held_.erase(0, n);
      return false;
    }
    const size_t n = all.substr(0, found).find_last_not_of(kBlanks) + 1;
    const std::string blanks(all.substr(n, found - n));
    add_text(out, AnswerPiece::Kind::text, all.substr(0, n));
    held_.erase(0, found);
    open_call();
    taken_ = blanks;
    return true;
  }

  void open_call() {
    place_ = Place::call;
    script_.clear();
    script_.push_back({Part::Kind::literal, format_.before});
    script_.insert(script_.end(), format_.call.begin(), format_.call.end());
    i_script_ = 0;
    begin_call();
  }
  void begin_call() {
    end_of_arguments_ = ObjectEnd();
    named_.reset();
    id_.clear();
    taken_.clear();
    calls_.are_whole = name_is_known_ = false;
  }

  bool give_up(Pieces& out) {  // what was read of a call that is none goes on as text
    held_.insert(0, taken_);
    taken_.clear();
    place_ = Place::broken;
    return step(out);
  }

  bool call_step(Pieces& out) {
    if (i_script_ == script_.size()) {
      place_ = Place::between;
      return true;
    }
    const Part& part = script_[i_script_];
    if (part.kind == Part::Kind::literal) {
      if (held_.size() < part.text.size() && part.text.starts_with(held_)) return false;
      if (!held_.starts_with(part.text)) return give_up(out);
      taken_ += part.text;
      held_.erase(0, part.text.size());
      ++i_script_;
      return true;
    }
    if (part.kind == Part::Kind::arguments) return arguments_step(out);
    const size_t n =
        static_cast<size_t>(std::find_if_not(held_.begin(), held_.end(), is_name_character) - held_.begin());
    if (n == held_.size()) return n > 256 ? give_up(out) : false;
    const std::string word = held_.substr(0, n);
    if (part.kind == Part::Kind::name) {
      if (!knows(options_, word)) return give_up(out);
      out.push_back({AnswerPiece::Kind::call, word, id_, calls_.n++});
      name_is_known_ = true;
      if (format_.form == Format::Form::named) named_.emplace(format_.arguments, kinds_of(word));
    } else if (part.kind == Part::Kind::id) {
      id_ = word;
    }
    taken_ = part.kind == Part::Kind::name ? std::string() : taken_ + word;
    held_.erase(0, n);
    ++i_script_;
    return true;
  }

  tools::ArgumentKinds kinds_of(std::string_view name) const {
    for (const Tool& tool : options_.tools) {
      if (tool.name == name) return tools::ArgumentKinds(tool.parameters);
    }
    return {};
  }

  bool named_step(Pieces& out) {
    std::string json;
    const auto went = named_->take(held_, json);
    add_text(out, AnswerPiece::Kind::arguments, json, calls_.n - 1);
    if (went == tools::ArgumentsReader::Went::broken) return give_up(out);
    if (went == tools::ArgumentsReader::Went::on) return false;
    calls_.are_whole = true;
    taken_.clear();
    ++i_script_;
    return true;
  }

  bool arguments_step(Pieces& out) {
    if (named_) return named_step(out);
    const size_t n = end_of_arguments_.take(held_);
    add_text(out, AnswerPiece::Kind::arguments, std::string_view(held_).substr(0, n), calls_.n - 1);
    held_.erase(0, n);
    if (end_of_arguments_.bad()) return give_up(out);
    if (!end_of_arguments_.done()) return false;
    calls_.are_whole = true;
    taken_.clear();
    ++i_script_;
    return true;
  }

  // Of what stands between two calls, the second one's: what stays text where it becomes none.
  std::string opening_of_next() const {
    const std::string &between = format_.between, &after = format_.after;
    auto n = static_cast<size_t>(std::mismatch(between.begin(), between.end(), after.begin(), after.end()).first -
                                 between.begin());
    while (n > 0 && n < between.size() && (static_cast<unsigned char>(between[n]) & 0xC0) == 0x80)
      --n;  // whole characters
    n = std::min(between.find_first_not_of(kBlanks, n), between.size());
    return between.substr(n);
  }

  // Behind a call: another one, or the end.
  bool end_or_next(Pieces& out) {
    const std::string &between = format_.between, &after = format_.after;
    if (format_.parallel && held_.starts_with(between)) {
      held_.erase(0, between.size());
      place_ = Place::call;
      i_script_ = 1;
      begin_call();
      taken_ = opening_of_next();
      return true;
    }
    if (format_.parallel && held_.size() < between.size() && between.starts_with(held_)) return false;
    if (held_.size() < after.size() && after.starts_with(held_)) return false;
    if (!held_.starts_with(after)) return give_up(out);
    held_.erase(0, after.size());
    place_ = Place::after;
    return true;
  }

  const AnswerReader::Options& options_;
  const Format& format_;
  Calls& calls_;
  std::string held_;  // of the answer, not parted yet
  Place place_ = Place::text;
  std::vector<Part> script_;
  size_t i_script_ = 0;
  ObjectEnd end_of_arguments_;
  std::optional<tools::ArgumentsReader> named_;
  std::string id_;
  std::string taken_;  // of a call whose name is not known yet
  bool name_is_known_ = false;
};

// Parts an answer in messages of several channels.
// gpt-oss: [<|start|>assistant][ to=functions.NAME]<|channel|>CHANNEL[ to=functions.NAME][
// <|constrain|>json]<|message|>TEXT<|end|>
class ChannelReader {
 public:
  // Both must outlive it.
  ChannelReader(const AnswerReader::Options& options, Calls& calls) : options_(options), calls_(calls) {}

  void push(std::string_view text, Pieces& out) {
    held_ += text;
    while (step(out, false)) {
    }
  }
  void finish(Pieces& out) {
    while (step(out, true)) {
    }
  }
  bool in_reasoning() const { return in_message_ && kind_ == AnswerPiece::Kind::reasoning; }

 private:
  static constexpr std::string_view kMessage = "<|message|>";
  static constexpr size_t kHeadMost = 4096;  // bytes before it

  bool step(Pieces& out, bool is_last) {
    if (!in_message_) {
      // Where a head ends, and what of one that is too long is text, does not depend on the pieces it came in.
      const size_t end = held_.find(kMessage);
      if (end <= kHeadMost) return open_message(held_.substr(0, end), end, out);
      if (held_.size() >= kHeadMost + kMessage.size()) {
        size_t n = kHeadMost;
        while (n > kHeadMost - 3 && (static_cast<unsigned char>(held_[n]) & 0xC0) == 0x80) --n;  // whole characters
        return unread(out, n);
      }
      return is_last && !held_.empty() && unread(out, held_.size());
    }
    size_t end = std::string::npos, size = 0;
    for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>"}) {
      const size_t found = held_.find(mark);
      if (found < end) end = found, size = mark.size();
    }
    size_t sure = end;
    if (end == std::string::npos) {
      sure = held_.size();
      if (!is_last) {
        for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>"})
          sure = std::min(sure, held_.size() - begun_at_end(held_, mark));
      }
    }
    const std::string text = held_.substr(0, sure);
    if (kind_ == AnswerPiece::Kind::arguments) {
      end_of_arguments_.take(text);
      calls_.are_whole = end_of_arguments_.done();
      add_text(out, kind_, text, calls_.n - 1);
    } else {
      add_text(out, kind_, text);
    }
    held_.erase(0, end == std::string::npos ? sure : sure + size);
    if (end == std::string::npos) return false;
    in_message_ = false;
    return true;
  }

  bool unread(Pieces& out, size_t n) {
    const std::string part = held_.substr(0, n);
    if (part.find_first_not_of(kBlanks) != std::string::npos && !part.starts_with("<|start|>") &&
        !part.starts_with("<|channel|>"))
      add_text(out, AnswerPiece::Kind::text, part);
    held_.erase(0, n);
    return true;
  }

  bool open_message(const std::string& head, size_t end, Pieces& out) {
    held_.erase(0, end + kMessage.size());
    in_message_ = true;
    const size_t to = head.find("to=functions.");
    const size_t channel = head.find("<|channel|>");
    const std::string_view name_of_channel =
        channel == std::string::npos ? std::string_view() : std::string_view(head).substr(channel + 11);
    if (to != std::string::npos) {
      const std::string_view rest = std::string_view(head).substr(to + 13);
      const std::string name(rest.substr(
          0, static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), is_name_character) - rest.begin())));
      if (knows(options_, name)) {
        kind_ = AnswerPiece::Kind::arguments;
        end_of_arguments_ = ObjectEnd();
        out.push_back({AnswerPiece::Kind::call, name, {}, calls_.n++});
        return true;
      }
    }
    kind_ = name_of_channel.starts_with("analysis") ? AnswerPiece::Kind::reasoning : AnswerPiece::Kind::text;
    return true;
  }

  const AnswerReader::Options& options_;
  Calls& calls_;
  std::string held_;
  bool in_message_ = false;
  AnswerPiece::Kind kind_ = AnswerPiece::Kind::text;
  ObjectEnd end_of_arguments_;
};

}  // namespace

struct AnswerReader::State {
  explicit State(Options o) : options(std::move(o)) {
    if (options.format && options.format->has_channels()) {
      channels.emplace(options, calls);
      return;
    }
    if (options.marks) splitter.emplace(*options.marks, options.reasoning_is_open);
    if (options.format) in_text.emplace(options, options.format->format(), calls);
  }
  State(const State&) = delete;  // its parts refer to it
  State& operator=(const State&) = delete;

  void push(std::string_view text, Pieces& out) {
    if (channels) return channels->push(text, out);
    if (!splitter) return add(text, out);
    const ReasoningSplitter::Part part = splitter->push(text);
    add_text(out, AnswerPiece::Kind::reasoning, part.reasoning);
    add(part.text, out);
  }

  void finish(Pieces& out) {
    if (channels) return channels->finish(out);
    if (splitter) {
      const ReasoningSplitter::Part part = splitter->finish();
      add_text(out, AnswerPiece::Kind::reasoning, part.reasoning);
      add(part.text, out);
    }
    if (in_text) in_text->finish(out);
  }

  void add(std::string_view text, Pieces& out) {
    in_text ? in_text->push(text, out) : add_text(out, AnswerPiece::Kind::text, text);
  }

  bool in_reasoning() const {
    return channels ? channels->in_reasoning() : splitter.has_value() && splitter->is_open();
  }

  const Options options;
  Calls calls;
  std::optional<ReasoningSplitter> splitter;  // of what no channel tells apart
  std::optional<CallReader> in_text;
  std::optional<ChannelReader> channels;
};

AnswerReader::AnswerReader(Options options) : state_(std::make_unique<State>(std::move(options))) {}
AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;

Pieces AnswerReader::push(std::string_view text) {
  Pieces out;
  state_->push(text, out);
  return out;
}

Pieces AnswerReader::finish() {
  Pieces out;
  state_->finish(out);
  return out;
}

bool AnswerReader::in_reasoning() const noexcept { return state_->in_reasoning(); }
size_t AnswerReader::n_calls() const noexcept { return state_->calls.n; }
bool AnswerReader::calls_are_whole() const noexcept { return state_->calls.n > 0 && state_->calls.are_whole; }

ReadAnswer read_answer(AnswerReader::Options options, std::string_view text) {
  AnswerReader reader(std::move(options));
  Pieces pieces = reader.push(text);
  for (AnswerPiece& piece : reader.finish()) pieces.push_back(std::move(piece));
  ReadAnswer answer;
  for (const AnswerPiece& p : pieces) {
    switch (p.kind) {
      case AnswerPiece::Kind::reasoning: answer.reasoning += p.text; break;
      case AnswerPiece::Kind::text: answer.text += p.text; break;
      case AnswerPiece::Kind::call: answer.calls.push_back({p.id, p.text, ""}); break;
      case AnswerPiece::Kind::arguments: answer.calls.at(p.i_call).arguments += p.text; break;
    }
  }
  return answer;
}

}  // namespace assay
