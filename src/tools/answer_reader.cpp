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

}  // namespace

struct AnswerReader::State {
  explicit State(Options o) : options(std::move(o)) {
    if (options.marks && !has_channels()) splitter.emplace(*options.marks, options.reasoning_is_open);
  }

  enum class Place { text, call, between, after, broken };

  const Format* format() const { return options.format ? &options.format->format() : nullptr; }
  bool has_channels() const { return options.format && options.format->has_channels(); }
  bool knows(std::string_view name) const {
    return !name.empty() && (options.names.empty() ||
                             std::find(options.names.begin(), options.names.end(), name) != options.names.end());
  }

  void push(std::string_view text, Pieces& out) {
    if (has_channels()) {
      held += text;
      while (channel_step(out, false)) {
      }
      return;
    }
    if (!splitter) return add(text, out);
    const ReasoningSplitter::Part part = splitter->push(text);
    add_text(out, AnswerPiece::Kind::reasoning, part.reasoning);
    add(part.text, out);
  }

  void finish(Pieces& out) {
    if (has_channels()) {
      while (channel_step(out, true)) {
      }
      return;
    }
    if (splitter) {
      const ReasoningSplitter::Part part = splitter->finish();
      add_text(out, AnswerPiece::Kind::reasoning, part.reasoning);
      add(part.text, out);
    }
    if (place == Place::call && !name_is_known) held.insert(0, taken);  // it may not have become a call
    if (place == Place::text || place == Place::broken || (place == Place::call && !name_is_known))
      add_text(out, AnswerPiece::Kind::text, held);
    held.clear();
  }

  void add(std::string_view text, Pieces& out) {
    if (format() == nullptr) return add_text(out, AnswerPiece::Kind::text, text);
    held += text;
    while (step(out)) {
    }
  }

  // Takes something off `held`; false: more is needed.
  bool step(Pieces& out) {
    switch (place) {
      case Place::text:
        return find_opening(out);
      case Place::call:
        return call_step(out);
      case Place::between:
        return end_or_next(out);
      case Place::after:
        held.erase(0, std::min(held.find_first_not_of(kBlanks), held.size()));
        if (held.empty()) return false;
        place = Place::broken;
        return true;
      case Place::broken:
        add_text(out, AnswerPiece::Kind::text, held);
        held.clear();
        return false;
    }
    return false;
  }

  bool find_opening(Pieces& out) {
    const std::string_view opening = format()->opening();
    const std::string_view all = held;
    if (format()->anchored) {
      const size_t begin = std::min(all.find_first_not_of(kBlanks), all.size());
      const std::string_view rest = all.substr(begin);
      if (rest.size() < opening.size() && opening.starts_with(rest)) return false;
      if (!rest.starts_with(opening)) {
        place = Place::broken;
        return true;
      }
      held.erase(0, begin);
      open_call();
      return true;
    }
    const size_t found = all.find(opening);
    if (found == std::string_view::npos) {
      const size_t sure = all.size() - begun_at_end(all, opening);
      const size_t n = all.substr(0, sure).find_last_not_of(kBlanks) + 1;  // blanks before a call are none of the text
      add_text(out, AnswerPiece::Kind::text, all.substr(0, n));
      held.erase(0, n);
      return false;
    }
    const size_t n = all.substr(0, found).find_last_not_of(kBlanks) + 1;
    const std::string blanks(all.substr(n, found - n));
    add_text(out, AnswerPiece::Kind::text, all.substr(0, n));
    held.erase(0, found);
    open_call();
    taken = blanks;
    return true;
  }

  void open_call() {
    place = Place::call;
    script.clear();
    script.push_back({Part::Kind::literal, format()->before});
    script.insert(script.end(), format()->call.begin(), format()->call.end());
    i_script = 0;
    begin_call();
  }
  void begin_call() {
    end_of_arguments = ObjectEnd();
    named.reset();
    id.clear();
    taken.clear();
    arguments_done = name_is_known = false;
  }

  bool give_up(Pieces& out) {  // what was read of a call that is none goes on as text
    held.insert(0, taken);
    taken.clear();
    place = Place::broken;
    return step(out);
  }

  bool call_step(Pieces& out) {
    if (i_script == script.size()) {
      place = Place::between;
      return true;
    }
    const Part& part = script[i_script];
    if (part.kind == Part::Kind::literal) {
      if (held.size() < part.text.size() && part.text.starts_with(held)) return false;
      if (!held.starts_with(part.text)) return give_up(out);
      taken += part.text;
      held.erase(0, part.text.size());
      ++i_script;
      return true;
    }
    if (part.kind == Part::Kind::arguments) return arguments_step(out);
    const size_t n = static_cast<size_t>(std::find_if_not(held.begin(), held.end(), is_name_character) - held.begin());
    if (n == held.size()) return n > 256 ? give_up(out) : false;
    const std::string word = held.substr(0, n);
    if (part.kind == Part::Kind::name) {
      if (!knows(word)) return give_up(out);
      out.push_back({AnswerPiece::Kind::call, word, id, n_calls++});
      name_is_known = true;
      if (format()->form == Format::Form::named) named.emplace(format()->arguments, kinds_of(word));
    } else if (part.kind == Part::Kind::id) {
      id = word;
    }
    taken = part.kind == Part::Kind::name ? std::string() : taken + word;
    held.erase(0, n);
    ++i_script;
    return true;
  }

  tools::ArgumentKinds kinds_of(std::string_view name) const {
    for (const Tool& tool : options.tools) {
      if (tool.name == name) return tools::ArgumentKinds(tool.parameters);
    }
    return {};
  }

  bool named_step(Pieces& out) {
    std::string json;
    const auto went = named->take(held, json);
    add_text(out, AnswerPiece::Kind::arguments, json, n_calls - 1);
    if (went == tools::ArgumentsReader::Went::broken) return give_up(out);
    if (went == tools::ArgumentsReader::Went::on) return false;
    arguments_done = true;
    taken.clear();
    ++i_script;
    return true;
  }

  bool arguments_step(Pieces& out) {
    if (named) return named_step(out);
    const size_t n = end_of_arguments.take(held);
    add_text(out, AnswerPiece::Kind::arguments, std::string_view(held).substr(0, n), n_calls - 1);
    held.erase(0, n);
    if (end_of_arguments.bad()) return give_up(out);
    if (!end_of_arguments.done()) return false;
    arguments_done = true;
    taken.clear();
    ++i_script;
    return true;
  }

  // Behind a call: another one, or the end.
  bool end_or_next(Pieces& out) {
    const std::string &between = format()->between, &after = format()->after;
    if (format()->parallel && held.starts_with(between)) {
      held.erase(0, between.size());
      place = Place::call;
      i_script = 1;
      begin_call();
      return true;
    }
    if (format()->parallel && held.size() < between.size() && between.starts_with(held)) return false;
    if (held.size() < after.size() && after.starts_with(held)) return false;
    if (!held.starts_with(after)) return give_up(out);
    held.erase(0, after.size());
    place = Place::after;
    return true;
  }

  // gpt-oss: [<|start|>assistant][ to=functions.NAME]<|channel|>CHANNEL[ to=functions.NAME][
  // <|constrain|>json]<|message|>TEXT<|end|>
  bool channel_step(Pieces& out, bool is_last) {
    if (!in_message) {
      const size_t end = held.find("<|message|>");
      if (end == std::string::npos) {
        if (is_last || held.size() > 4096) return unread(out);
        return false;
      }
      return open_message(held.substr(0, end), end, out);
    }
    size_t end = std::string::npos, size = 0;
    for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>"}) {
      const size_t found = held.find(mark);
      if (found < end) end = found, size = mark.size();
    }
    size_t sure = end;
    if (end == std::string::npos) {
      sure = held.size();
      if (!is_last) {
        for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>"})
          sure = std::min(sure, held.size() - begun_at_end(held, mark));
      }
    }
    const std::string text = held.substr(0, sure);
    if (kind == AnswerPiece::Kind::arguments) {
      end_of_arguments.take(text);
      arguments_done = end_of_arguments.done();
      add_text(out, kind, text, n_calls - 1);
    } else {
      add_text(out, kind, text);
    }
    held.erase(0, end == std::string::npos ? sure : sure + size);
    if (end == std::string::npos) return false;
    in_message = false;
    return true;
  }

  bool unread(Pieces& out) {
    if (held.find_first_not_of(kBlanks) != std::string::npos && !held.starts_with("<|start|>") &&
        !held.starts_with("<|channel|>"))
      add_text(out, AnswerPiece::Kind::text, held);
    held.clear();
    return false;
  }

  bool open_message(const std::string& head, size_t end, Pieces& out) {
    held.erase(0, end + std::string_view("<|message|>").size());
    in_message = true;
    const size_t to = head.find("to=functions.");
    const size_t channel = head.find("<|channel|>");
    const std::string_view name_of_channel =
        channel == std::string::npos ? std::string_view() : std::string_view(head).substr(channel + 11);
    if (to != std::string::npos) {
      const std::string_view rest = std::string_view(head).substr(to + 13);
      const std::string name(rest.substr(
          0, static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), is_name_character) - rest.begin())));
      if (knows(name)) {
        kind = AnswerPiece::Kind::arguments;
        end_of_arguments = ObjectEnd();
        out.push_back({AnswerPiece::Kind::call, name, {}, n_calls++});
        return true;
      }
    }
    kind = name_of_channel.starts_with("analysis") ? AnswerPiece::Kind::reasoning : AnswerPiece::Kind::text;
    return true;
  }

  bool in_reasoning() const {
    if (has_channels()) return in_message ? kind == AnswerPiece::Kind::reasoning : false;
    return splitter && splitter->is_open();
  }

  Options options;
  std::optional<ReasoningSplitter> splitter;
  std::string held;
  Place place = Place::text;
  std::vector<Part> script;
  size_t i_script = 0, n_calls = 0;
  ObjectEnd end_of_arguments;
  std::optional<tools::ArgumentsReader> named;
  std::string id;
  std::string taken;  // of a call whose name is not known yet
  bool arguments_done = false, name_is_known = false;
  bool in_message = false;
  AnswerPiece::Kind kind = AnswerPiece::Kind::text;
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
size_t AnswerReader::n_calls() const noexcept { return state_->n_calls; }
bool AnswerReader::calls_are_whole() const noexcept { return state_->n_calls > 0 && state_->arguments_done; }

ReadAnswer read_answer(AnswerReader::Options options, std::string_view text) {
  AnswerReader reader(std::move(options));
  Pieces pieces = reader.push(text);
  for (AnswerPiece& piece : reader.finish()) pieces.push_back(std::move(piece));
  ReadAnswer answer;
  for (const AnswerPiece& p : pieces) {
    switch (p.kind) {
      case AnswerPiece::Kind::reasoning:
        answer.reasoning += p.text;
        break;
      case AnswerPiece::Kind::text:
        answer.text += p.text;
        break;
      case AnswerPiece::Kind::call:
        answer.calls.push_back({p.id, p.text, ""});
        break;
      case AnswerPiece::Kind::arguments:
        answer.calls.at(p.i_call).arguments += p.text;
        break;
    }
  }
  return answer;
}

}  // namespace assay
