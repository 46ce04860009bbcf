// See tokenizer_json.h.
#include "convert/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "text/pre_tokenizers.h"

namespace assay::converting {
namespace {

constexpr size_t kVocabSizeMax = size_t{1} << 22;  // as the tokenizer's own
constexpr size_t kMergesMax = size_t{1} << 23;

int64_t id_of(JsonCursor& in) {
  const JsonNumber n = in.number();
  if (!n.integer || *n.integer < 0 || *n.integer >= static_cast<int64_t>(kVocabSizeMax))
    in.fail(fmt::format("needs a token id below {}", kVocabSizeMax));
  return *n.integer;
}

void read_merge(JsonCursor& in, TokenizerJson& all) {
  if (all.merges.size() == kMergesMax) in.fail(fmt::format("more than {} merges", kMergesMax));
  if (in.peek() == '[') {
    std::vector<std::string> parts;
    in.array([&] { parts.push_back(in.string()); });
    if (parts.size() != 2) in.fail(fmt::format("a merge of {} parts; needs 2", parts.size()));
    all.merges.emplace_back(std::move(parts[0]), std::move(parts[1]));
    return;
  }
  const std::string both = in.string();
  const size_t blank = both.find(' ');
  if (blank == std::string::npos || blank == 0 || blank + 1 == both.size() ||
      both.find(' ', blank + 1) != std::string::npos) {
    in.fail(fmt::format("the merge {}: needs two texts with one space between them", base::shown(both)));
  }
  all.merges.emplace_back(both.substr(0, blank), both.substr(blank + 1));
}

// A token of a Unigram: its text and its logarithm of likelihood.
void read_scored(JsonCursor& in, TokenizerJson& all) {
  if (all.vocab.size() == kVocabSizeMax) in.fail(fmt::format("more than {} tokens", kVocabSizeMax));
  int n = 0;
  std::string text;
  double score = 0;
  in.array([&] {
    if (n == 0)
      text = in.string();
    else if (n == 1)
      score = in.number().value;
    else
      in.fail("a token of a Unigram has a text and a score");
    ++n;
  });
  if (n != 2) in.fail("a token of a Unigram needs a text and a score");
  all.vocab.emplace_back(std::move(text), static_cast<int64_t>(all.vocab.size()));
  all.scores.push_back(static_cast<float>(score));
}

void read_model(JsonCursor& in, TokenizerJson& all) {
  in.object([&](const std::string& key) {
    if (key == "type") {
      all.model = in.string();
    } else if (key == "vocab" && in.peek() == '{') {
      in.object([&](const std::string& token) {
        if (all.vocab.size() == kVocabSizeMax) in.fail(fmt::format("more than {} tokens", kVocabSizeMax));
        all.vocab.emplace_back(token, id_of(in));
      });
    } else if (key == "vocab" && in.peek() == '[') {
      in.array([&] { read_scored(in, all); });
    } else if (key == "unk_token" && in.peek() == '"') {
      all.unknown = in.string();
    } else if (key == "unk_id" && in.peek() != 'n') {
      all.unknown_id = id_of(in);
    } else if (key == "merges" && in.peek() == '[') {
      in.array([&] { read_merge(in, all); });
    } else if (key == "byte_fallback" && in.peek() != 'n') {
      all.byte_fallback = in.boolean();
    } else if (key == "ignore_merges" && in.peek() != 'n') {
      all.ignore_merges = in.boolean();
    } else {
      in.skip();
    }
  });
}

void read_added(JsonCursor& in, TokenizerJson& all) {
  in.array([&] {
    AddedToken token;
    bool has_id = false;
    in.object([&](const std::string& key) {
      if (key == "id") {
        token.id = id_of(in);
        has_id = true;
      } else if (key == "content") {
        token.content = in.string();
      } else if (key == "special") {
        token.special = in.boolean();
      } else if (key == "normalized") {
        token.normalized = in.boolean();
      } else {
        in.skip();
      }
    });
    if (!has_id || token.content.empty()) in.fail("an added token needs id and content");
    all.added.push_back(std::move(token));
  });
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Appends what a part of a pre-tokenizer does; false: not known.
bool add_part(const Json& part, PreTokenizer& pre, std::string& unknown) {
  const std::string_view type = part.text("type");
  unknown = std::string(type);
  if (type == "Sequence") {
    const Json* parts = part.find("pretokenizers");
    if (parts == nullptr || parts->array() == nullptr) return false;
    return std::all_of(parts->array()->begin(), parts->array()->end(),
                       [&](const Json& one) { return add_part(one, pre, unknown); });
  }
  if (type == "ByteLevel") {
    if (part.flag("add_prefix_space")) {
      unknown += " with add_prefix_space";
      return false;
    }
    pre.byte_level = true;
    const Json* regex = part.find("use_regex");
    if (regex == nullptr || part.flag("use_regex")) pre.steps.push_back({std::string(kGpt2)});
    return true;
  }
  if (type == "Digits") {
    pre.steps.push_back({part.flag("individual_digits") ? R"(\p{N})" : R"(\p{N}+)"});
    return true;
  }
  if (type == "Split") {
    const Json* pattern = part.find("pattern");
    const std::string_view behavior = part.text("behavior");
    // "Removed" with "invert" keeps the matches and drops what is between them, which is nothing where the expression
    // takes every character.
    const bool keeps =
        (behavior == "Isolated" && !part.flag("invert")) || (behavior == "Removed" && part.flag("invert"));
    if (pattern == nullptr || !keeps) {
      unknown += fmt::format(" with the behavior {}{}", base::shown(behavior), part.flag("invert") ? ", inverted" : "");
      return false;
    }
    const std::string_view regex = pattern->text("Regex"), plain = pattern->text("String");
    if (regex.empty() && plain.empty()) return false;
    pre.steps.push_back({regex.empty() ? escaped(plain) : std::string(regex)});
    return true;
  }
  return false;
}

// An expression with each \x{...} as the character itself, so that two spellings of it compare equal.
std::string spelled(std::string_view expression) {
  std::string out;
  for (size_t at = 0; at < expression.size();) {
    const size_t end = expression.substr(at, 3) == R"(\x{)" ? expression.find('}', at) : std::string_view::npos;
    uint32_t code = 0;
    if (end != std::string_view::npos &&
        std::from_chars(expression.data() + at + 3, expression.data() + end, code, 16).ec == std::errc{} &&
        code >= 0x80) {
      base::append_utf8(out, code);
      at = end + 1;
    } else {
      out += expression[at++];
    }
  }
  return out;
}

bool cuts_alike(const PreTokenizer& pre, const text::PreTokenizerRules& rules) {
  if (pre.steps.size() != rules.steps.size()) return false;
  for (size_t i = 0; i < pre.steps.size(); ++i) {
    if (rules.steps[i].cut != text::Cut::isolate ||
        spelled(pre.steps[i].expression) != spelled(rules.steps[i].expression))
      return false;
  }
  return true;
}

// Of rules with several names the one to write: first what the architecture's models have, then the oldest. Names not
// listed come after these.
struct Preferred {
  std::string_view architecture, name;
};
constexpr std::array kPreferred = {
    Preferred{"olmo", "olmo"},
    Preferred{"olmo2", "dbrx"},
    Preferred{"exaone4", "exaone4"},
    Preferred{"granite", "refact"},
    Preferred{"command-r", "command-r"},
    Preferred{"starcoder2", "starcoder"},
    Preferred{"stablelm", "stablelm2"},
    Preferred{"phi2", "phi-2"},
    Preferred{"glm4", "glm4"},
    Preferred{"llama4", "llama4"},
    Preferred{"smollm3", "smaug-bpe"},
    Preferred{"minimax-m2", "minimax-m2"},
    Preferred{"mellum", "mellum"},
    Preferred{"", "llama-bpe"},
    Preferred{"", "gpt-2"},
    Preferred{"", "smollm"},
    Preferred{"", "qwen2"},
    Preferred{"", "dbrx"},
    Preferred{"", "glm4"},
    Preferred{"", "gpt-4o"},
    Preferred{"", "deepseek-v3"},
    Preferred{"", "bloom"},
};

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view text) {
  TokenizerJson all;
  JsonCursor in(text, "tokenizer.json");
  in.object([&](const std::string& key) {
    if (key == "model") {
      read_model(in, all);
    } else if (key == "added_tokens") {
      read_added(in, all);
    } else if (key == "normalizer") {
      all.normalizer = Json::read(in);
    } else if (key == "pre_tokenizer") {
      all.pre_tokenizer = Json::read(in);
    } else if (key == "post_processor") {
      all.post_processor = Json::read(in);
    } else if (key == "decoder") {
      all.decoder = Json::read(in);
    } else {
      in.skip();
    }
  });
  in.end();
  if (all.model.empty() && !all.merges.empty()) all.model = "BPE";  // older files do not say it
  return all;
}

std::optional<PreTokenizer> read_pre_tokenizer(const Json& pre_tokenizer, std::string& unknown) {
  PreTokenizer pre;
  if (pre_tokenizer.is_null()) {
    unknown = "none at all";
    return std::nullopt;
  }
  if (!add_part(pre_tokenizer, pre, unknown)) return std::nullopt;
  if (!pre.byte_level) {
    unknown = "one that is not of bytes";
    return std::nullopt;
  }
  return pre;
}

std::optional<std::string> pre_tokenizer_name(const PreTokenizer& pre, bool ignores_merges,
                                              std::string_view architecture) {
  const auto fits = [&](std::string_view name) {
    const auto rules = text::find_pre_tokenizer(name);
    return rules && rules->ignores_merges == ignores_merges && cuts_alike(pre, *rules);
  };
  for (const Preferred& one : kPreferred) {
    if (one.architecture == architecture && fits(one.name)) return std::string(one.name);
  }
  for (const Preferred& one : kPreferred) {
    if (one.architecture.empty() && fits(one.name)) return std::string(one.name);
  }
  for (const std::string_view name : text::pre_tokenizer_names()) {
    if (fits(name)) return std::string(name);
  }
  return std::nullopt;
}

}  // namespace assay::converting
