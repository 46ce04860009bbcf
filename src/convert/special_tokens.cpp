// Special tokens by what tokenizer.json, tokenizer_config.json and config.json say of them, in this order.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/vocabulary.h"

namespace assay::converting {
namespace {

using gguf::Value;

constexpr uint64_t kTemplateBytesMax = 1 << 20;

class SpecialTokens {
 public:
  SpecialTokens(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer,
                std::optional<int64_t> n_vocab)
      : draft_(draft), family_(family), tokenizer_(tokenizer), n_vocab_(n_vocab),
        config_(draft.folder.json_of("tokenizer_config.json")) {}

  void run() {
    if (config_) {
      for (const std::string_view type : types_) texts_[std::string(type)] = token_text(type);
    }
    if (tokenizer_) read_post_processor();
    if (config_) {
      for (const std::string& type : types_) read_config(type);
      add_templates();
    }
    for (const std::string& type : types_) {
      const Json* id = draft_.folder.config().find(type + "_token_id");
      if (id == nullptr || id->is_null()) {
        const Json* text = draft_.folder.config().find("text_config");
        id = text == nullptr ? nullptr : text->find(type + "_token_id");
      }
      if (id != nullptr && id->number() != nullptr && id->number()->integer) set(type, *id->number()->integer);
    }
    set_by_text();
    write();
    if (tokenizer_) write_normalizer(tokenizer_->normalizer);
  }

 private:
  // Where nothing says which token it is, the family does.
  void set_by_text() {
    for (const auto& [type, text] : family_.options.special_texts) {
      if (ids_.contains(std::string(type)) || !tokenizer_) continue;
      const auto found = std::find_if(tokenizer_->added.begin(), tokenizer_->added.end(),
                                      [wanted = text](const AddedToken& t) { return t.content == wanted; });
      if (found == tokenizer_->added.end()) {
        throw Error(Errc::bad_file,
                    fmt::format("tokenizer.json: needs the added token {}, which is {} in models of {}; there is none",
                                base::shown(text), type, draft_.architecture()));
      }
      set(std::string(type), found->id);
    }
  }

  void write_normalizer(const Json& normalizer) {
    const std::string_view type = normalizer.text("type");
    const auto write_flag = [&](std::string_view from, std::string_view to) {
      const Json* flag = normalizer.find(from);
      if (flag != nullptr && flag->boolean() != nullptr)
        draft_.head.set(fmt::format("tokenizer.ggml.normalizer.{}", to), Value::of(*flag->boolean()));
    };
    if (type == "Lowercase") draft_.head.set("tokenizer.ggml.normalizer.lowercase", Value::of(true));
    if (type == "StripAccents") draft_.head.set("tokenizer.ggml.normalizer.strip_accents", Value::of(true));
    if (type == "BertNormalizer") {
      write_flag("lowercase", "lowercase");
      write_flag("strip_accents", "strip_accents");
    }
    const Json* parts = normalizer.find("normalizers");
    if (type != "Sequence" || parts == nullptr || parts->array() == nullptr) return;
    for (const Json& part : *parts->array()) write_normalizer(part);
  }

  // A token of tokenizer_config.json, as text or as an object.
  std::string token_text(std::string_view type) const {
    const Json* entry = config_->find(fmt::format("{}_token", type));
    if (entry == nullptr) return {};
    if (entry->string() != nullptr) return *entry->string();
    return std::string(entry->text("content"));
  }

  void set(const std::string& type, int64_t id) {
    if (id < 0) throw Error(Errc::bad_file, fmt::format("config.json: {}_token_id is {}", type, id));
    if (n_vocab_ && id >= *n_vocab_) {
      draft_.notes.push_back(
          fmt::format("config.json: {}_token_id is {}, the vocabulary has {} tokens: left out", type, id, *n_vocab_));
      return;
    }
    ids_.try_emplace(type, id);
  }

  // What is put before and behind a text, where the template is a plain one.
  void read_template(const Json& processor) {
    const Json* single = processor.find("single");
    if (single == nullptr || single->array() == nullptr || single->array()->size() < 2) return;
    const auto special = [](const Json& part) {
      const Json* token = part.find("SpecialToken");
      return token == nullptr ? std::string() : std::string(token->text("id"));
    };
    if (const std::string first = special(single->array()->front()); !first.empty()) {
      if (!config_ || (first != texts_["bos"] && first != texts_["cls"] && texts_["bos"].empty()))
        texts_["bos"] = first;
      adds_["bos"] = first == texts_["bos"] || first == texts_["cls"];
    }
    if (const std::string last = special(single->array()->back()); !last.empty()) {
      if (config_ && last != texts_["eos"] &&
          !texts_["eos"].empty()) {  // a text ends with another token than an answer
        types_.push_back("eot");
        texts_["eot"] = texts_["eos"];
      }
      texts_["eos"] = last;
      adds_["eos"] = true;
    }
    if (const Json* pair = processor.find("pair"); pair != nullptr && pair->array() != nullptr)
      read_pair(*pair->array(), special);
  }

  template <class Special>
  void read_pair(const Json::Array& pair, Special special) {
    size_t begin = 0, end = pair.size();
    if (begin < end && special(pair[begin]) == texts_["bos"] && !texts_["bos"].empty()) ++begin;
    if (begin < end && special(pair[end - 1]) == texts_["eos"] && !texts_["eos"].empty() && adds_.contains("eos"))
      --end;
    const auto sequence = [&](size_t i) {
      const Json* part = pair[i].find("Sequence");
      return part == nullptr ? std::string_view() : part->text("id");
    };
    if (end - begin < 3 || sequence(begin) != "A" || sequence(end - 1) != "B") return;
    bool adds = false;
    const std::string middle = special(pair[begin + 1]);
    const auto separates = [&](const std::string& token) {
      return !token.empty() && (token == texts_["sep"] || token == texts_["eos"]);
    };
    if (separates(middle) && !adds_.contains("eos")) adds = true;
    if (end - begin == 4 && separates(special(pair[begin + 2]))) adds = true;
    adds_["sep"] = adds;
  }

  void read_post_processor() {
    if (config_ && texts_["bos"].empty()) texts_["bos"] = texts_["cls"];
    if (config_ && texts_["eos"].empty()) texts_["eos"] = texts_["sep"];
    const Json& top = tokenizer_->post_processor;
    if (top.is_null()) return;
    const auto read = [&](const Json& processor) {
      const std::string_view type = processor.text("type");
      if (type == "ByteLevel") {
        adds_.try_emplace("bos", false);
        adds_.try_emplace("eos", false);
      } else if (type == "TemplateProcessing") {
        read_template(processor);
      } else {
        throw Error(Errc::unsupported,
                    fmt::format("tokenizer.json: the post-processor {} is not known", base::shown(type)));
      }
    };
    const Json* parts = top.find("processors");
    if (parts == nullptr || parts->array() == nullptr) return read(top);
    for (const Json& part : *parts->array()) read(part);
  }

  void read_config(const std::string& type) {
    if (const Json* adds = config_->find(fmt::format("add_{}_token", type));
        adds != nullptr && adds->boolean() != nullptr) {
      const auto [known, is_new] = adds_.try_emplace(type, *adds->boolean());
      if (!is_new && known->second != *adds->boolean()) {
        draft_.notes.push_back(fmt::format(
            "tokenizer_config.json: add_{}_token is {}, tokenizer.json's post-processor does otherwise and counts",
            type, *adds->boolean()));
      }
    }
    const std::string& text = texts_[type];
    if (text.empty() || !tokenizer_) return;
    const auto found = std::find_if(tokenizer_->added.begin(), tokenizer_->added.end(),
                                    [&](const AddedToken& t) { return t.content == text; });
    if (found != tokenizer_->added.end()) set(type, found->id);
  }

  // The names of further templates have letters, digits and low lines.
  static std::string plain_name(std::string_view name) {
    std::string text(name);
    for (char& c : text) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!plain) c = '_';
    }
    return text;
  }

  void add_named(const Json::Array& choices) {
    std::vector<std::string> names;
    std::string usual;
    for (const Json& choice : choices) {
      const std::string name = plain_name(choice.text("name"));
      const std::string_view text = choice.text("template");
      if (name.empty() || text.empty()) continue;
      if (name == "default") {
        usual = text;
      } else {
        names.push_back(name);
        draft_.head.set("tokenizer.chat_template." + name, Value::of(text));
      }
    }
    std::sort(names.begin(), names.end());
    if (!names.empty()) draft_.head.set("tokenizer.chat_templates", Value::of(std::span<const std::string>(names)));
    if (!usual.empty()) draft_.head.set("tokenizer.chat_template", Value::of(usual));
  }

  void add_templates() {
    const Json* own = config_->find("chat_template");
    if (own != nullptr && own->array() != nullptr) return add_named(*own->array());
    std::string text;
    if (own != nullptr && own->string() != nullptr) {
      text = *own->string();
      if (draft_.folder.has("chat_template.jinja") &&
          draft_.folder.text_of("chat_template.jinja", kTemplateBytesMax) != text) {
        draft_.notes.push_back(
            "tokenizer_config.json and chat_template.jinja have different templates; the first is taken");
      }
    } else if (draft_.folder.has("chat_template.jinja")) {
      text = draft_.folder.text_of("chat_template.jinja", kTemplateBytesMax);
    } else if (const auto file = draft_.folder.json_of("chat_template.json")) {
      text = file->text("chat_template");
    }
    if (!text.empty()) draft_.head.set("tokenizer.chat_template", Value::of(text));
  }

  void write() {
    static const std::map<std::string, std::string> kKeys = {
        {"bos", "bos"},     {"eos", "eos"},   {"unk", "unknown"}, {"sep", "seperator"},
        {"pad", "padding"}, {"mask", "mask"}, {"eot", "eot"},     {"eom", "eom"}};
    for (const auto& [type, id] : ids_) {
      const auto key = kKeys.find(type);
      if (key == kKeys.end()) continue;  // cls: GGUF has no key for it
      if (id > int64_t{0x7FFFFFFF}) throw Error(Errc::bad_file, fmt::format("{}_token_id is {}", type, id));
      draft_.head.set(fmt::format("tokenizer.ggml.{}_token_id", key->second), Value::of(static_cast<uint32_t>(id)));
    }
    for (const auto& [type, adds] : adds_) {
      if (type == "bos" || type == "eos" || type == "sep")
        draft_.head.set(fmt::format("tokenizer.ggml.add_{}_token", type), Value::of(adds));
    }
  }

  Draft& draft_;
  const Family& family_;
  const std::optional<TokenizerJson>& tokenizer_;
  std::optional<int64_t> n_vocab_;
  std::optional<Json> config_;
  std::vector<std::string> types_ = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};
  std::map<std::string, std::string> texts_;  // by type
  std::map<std::string, int64_t> ids_;
  std::map<std::string, bool> adds_;
};

std::vector<int64_t> ids_of(const Json* value) {
  std::vector<int64_t> ids;
  if (value == nullptr) return ids;
  const auto add = [&](const Json& one) {
    if (one.number() != nullptr && one.number()->integer && *one.number()->integer >= 0 &&
        *one.number()->integer <= int64_t{0x7FFFFFFF})
      ids.push_back(*one.number()->integer);
  };
  if (value->array() == nullptr) {
    add(*value);
  } else {
    for (const Json& one : *value->array()) add(one);
  }
  return ids;
}

// What a family's files say whatever else does.
void add_habits(Draft& d, const Family& family) {
  const auto set = [&](std::string_view name, int64_t id) {
    d.head.set(fmt::format("tokenizer.ggml.{}_token_id", name), Value::of(static_cast<uint32_t>(id)));
  };
  const auto set_missing = [&](std::string_view name, bool value) {
    const std::string key = fmt::format("tokenizer.ggml.add_{}_token", name);
    if (d.head.find(key) == nullptr) d.head.set(key, Value::of(value));
  };
  for (const auto& [name, id] : family.options.special_ids) set(name, id);
  if (family.options.habit == TokenHabit::hunyuan) {
    if (const std::vector<int64_t> end = ids_of(d.config.find("eod_token_id")); end.size() == 1) set("eos", end[0]);
    const auto generation = d.folder.json_of("generation_config.json");
    if (const std::vector<int64_t> ends = ids_of(generation ? generation->find("eos_token_id") : nullptr);
        ends.size() >= 2)
      set("eot", ends[0]);
  }
  if (family.options.habit == TokenHabit::laguna) {
    const std::vector<int64_t> ends = ids_of(d.config.find("eos_token_id")),
                               begins = ids_of(d.config.find("bos_token_id"));
    const auto other =
        std::find_if(ends.begin(), ends.end(), [&](int64_t id) { return begins.empty() || id != begins.front(); });
    if (ends.size() > 1 && other != ends.end()) set("eot", *other);
    if (d.folder.has("chat_template.jinja"))
      d.head.set("tokenizer.chat_template", Value::of(d.folder.text_of("chat_template.jinja", kTemplateBytesMax)));
  }
  if (family.options.habit == TokenHabit::surrounded) {
    for (const std::string_view name : {"bos", "eos", "sep"}) set_missing(name, true);
  }
  if (family.options.habit == TokenHabit::no_bos) set_missing("bos", false);
}

}  // namespace

void add_special_tokens(Draft& draft, const Family& family, const std::optional<TokenizerJson>& tokenizer,
                        std::optional<int64_t> n_vocab) {
  SpecialTokens(draft, family, tokenizer, n_vocab).run();
  add_habits(draft, family);
}

}  // namespace assay::converting
