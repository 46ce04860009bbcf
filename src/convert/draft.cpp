// See draft.h.
#include "convert/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/arrange.h"
#include "convert/rows.h"

namespace assay::converting {
namespace {

// Types: as llama.cpp's converter, from the name in the new file.
bool stays_f32(std::string_view name, int rank) {
  if (rank <= 1 || name.ends_with("_norm.weight") || !name.ends_with(".weight")) return true;
  for (const std::string_view part :
       {".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", ".ssm_conv1d.weight", ".shortconv.conv.weight",
        ".ssm_conv1d_q.weight", ".ssm_conv1d_k.weight", ".ssm_conv1d_v.weight", ".altup_correct_coef.weight",
        ".altup_predict_coef.weight", ".indexer.proj.weight"}) {
    if (name.ends_with(part)) return true;
  }
  return name == "position_embd.weight" || name == "token_types.weight";
}

std::string filled(std::string_view pattern, int64_t layer, int64_t expert) {
  std::string text(pattern);
  if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, std::to_string(layer));
  if (const size_t at = text.find("{x}"); at != std::string::npos) text.replace(at, 3, std::to_string(expert));
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

std::string text_model_name(std::string_view name) {
  std::string text(name);
  if (const size_t at = text.find("language_model."); at != std::string::npos) text.erase(at, 15);
  return text;
}

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at) {
    if (matches(rest, name.substr(at))) return true;
  }
  return false;
}

void Draft::read_names(const Names& names) {
  is_bare_ = names.bare || folder.find("embed_tokens.weight") != nullptr;
  for (const StoredTensor& t : folder.tensors()) {
    std::string name = text_model_name(t.name);
    if (!names.prefix.empty() && name.starts_with(names.prefix)) name.erase(0, names.prefix.size());
    if (names.bare && name.ends_with(".gamma")) name.replace(name.size() - 5, 5, "weight");  // of old
    if (names.bare && name.ends_with(".beta")) name.replace(name.size() - 4, 4, "bias");
    if (is_bare_ && !name.starts_with("model.") && name != "lm_head.weight") name.insert(0, "model.");
    if (!by_name_.emplace(name, &t).second)
      throw Error(Errc::bad_file, fmt::format("{}: there are two tensors of this name", base::shown(name)));
    taken_.emplace(std::move(name), false);
  }
}

Draft::Draft(const Folder& from, std::string architecture, std::string_view defaults, bool text_only,
             const Names& names)
    : folder(from), config(from.config(), defaults), architecture_(std::move(architecture)) {
  head.set("general.architecture", gguf::Value::of(architecture_));
  read_names(names);
  for (const char* none : {"*.rotary_emb.inv_freq", "*.attention.masked_bias", "*.attention.bias"}) leave(none);
  const bool sees = folder.config().find("vision_config") != nullptr || folder.config().find("audio_config") != nullptr;
  if (!sees) return;
  if (!text_only) {
    throw Error(Errc::unsupported,
                "config.json: this model also sees or hears, and assay converts text models; --text-only converts that "
                "part alone");
  }
  for (const char* other :
       {"vision_tower.*", "model.vision_tower.*", "vision_model.*", "model.vision_model.*", "multi_modal_projector.*",
        "model.multi_modal_projector.*", "visual.*", "model.visual.*", "audio_tower.*", "model.audio_tower.*",
        "embed_vision.*", "model.embed_vision.*", "embed_audio.*", "model.embed_audio.*", "model.connector.*"}) {
    leave(other);
  }
}

void Draft::set_architecture(std::string name) {
  architecture_ = std::move(name);
  head.set("general.architecture", gguf::Value::of(architecture_));
}

void Draft::count(std::string_view name, int64_t value) {
  if (value < 0 || value > int64_t{0xFFFFFFFF})
    throw Error(Errc::bad_file, fmt::format("config.json: {} would be {}", name, value));
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(static_cast<uint32_t>(value)));
}
void Draft::number(std::string_view name, double value) {
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(static_cast<float>(value)));
}
void Draft::flag(std::string_view name, bool value) {
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(value));
}
void Draft::text(std::string_view name, std::string_view value) {
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(value));
}
void Draft::flags(std::string_view name, const std::vector<bool>& values) {
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(values));
}

void Draft::counts(std::string_view name, const std::vector<int64_t>& values) {
  std::vector<int32_t> all;
  for (const int64_t value : values) {
    if (value < 0 || value > int64_t{0x7FFFFFFF})
      throw Error(Errc::bad_file, fmt::format("config.json: {} would hold {}", name, value));
    all.push_back(static_cast<int32_t>(value));
  }
  head.set(fmt::format("{}.{}", architecture_, name), gguf::Value::of(all));
}
void Draft::set_plain(std::string_view key, const std::vector<float>& values) {
  head.set(std::string(key), gguf::Value::of(values));
}

const StoredTensor* Draft::take_one(const std::string& name, bool packed) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const StoredTensor& t = *found->second;
  if (packed && t.type != "U8")
    throw Error(Errc::bad_file, fmt::format("{} is {}; packed MXFP4 is U8", base::shown(t.name), t.type));
  if (!t.dtype && !packed) {
    throw Error(
        Errc::unsupported,
        fmt::format(
            "{} is {}; assay converts F32, F16 and BF16. A quantised checkpoint has to be saved as one of them first",
            base::shown(t.name), t.type));
  }
  if (t.shape.size() > 4 || t.data.empty()) {
    throw Error(Errc::bad_file, fmt::format("{} has the shape {}; needs at most 4 dimensions, none of them 0",
                                            base::shown(t.name), shape_text(t.shape)));
  }
  taken_[name] = true;
  return &t;
}

void Draft::shape_rows(Output& output, const Rule& rule, const std::vector<const StoredTensor*>& sources) const {
  const StoredTensor& first = *sources.front();
  for (const StoredTensor* t : sources) {
    if (t->shape != first.shape || t->dtype != first.dtype) {
      throw Error(Errc::bad_file, fmt::format("{} is {} {}, {} is {} {}: experts of one layer have one shape",
                                              base::shown(first.name), first.type, shape_text(first.shape),
                                              base::shown(t->name), t->type, shape_text(t->shape)));
    }
  }
  Arranged arranged = arrange(rule.as, sources, {n_heads, n_kv_heads, n_state_groups});
  std::vector<int64_t> shape = std::move(arranged.shape);
  output.slices = std::move(arranged.slices);
  if (rule.from.find("{x}") != std::string_view::npos)
    shape.insert(shape.begin(), static_cast<int64_t>(sources.size()));
  if (shape.size() > 4)
    throw Error(Errc::bad_file, fmt::format("{} has {} dimensions", base::shown(first.name), shape.size()));
  output.shape.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), output.shape.dims.begin());
  output.cols = arranged.as_column ? 1 : output.shape.cols();
  output.rows = arranged.as_column ? output.shape.cols() * output.shape.rows() : output.shape.rows();
}

void Draft::add(const Rule& rule, const std::string& to, const std::vector<const StoredTensor*>& sources) {
  Output output;
  output.name = to;
  shape_rows(output, rule, sources);
  output.is_f32 = stays_f32(output.name, output.shape.rank);
  output.plus_one = rule.as == As::plus_one;
  output.negative_exp = rule.as == As::negative_exp || rule.as == As::negative_exp_column;
  if (rule.as == As::rope_q || rule.as == As::rope_k) {
    output.rope_heads = rule.as == As::rope_q ? n_heads : n_kv_heads;
    if (output.shape.rank == 1) {  // a bias: its elements are the rows
      output.rows = output.cols;
      output.cols = 1;
      output.slices = {{.tensor = sources.front(), .n_rows = output.rows}};
    }
    if (output.rope_heads <= 0 || output.rows % (2 * output.rope_heads) != 0) {
      throw Error(Errc::bad_file, fmt::format("{} has {} rows, which are not {} heads of an even width",
                                              base::shown(sources.front()->name), output.rows, output.rope_heads));
    }
  }
  outputs.push_back(std::move(output));
}

bool Draft::take_layer(const Rule& rule, int64_t layer) {
  const bool has_experts = rule.from.find("{x}") != std::string_view::npos;
  std::vector<const StoredTensor*> sources;
  for (int64_t x = 0; x < (has_experts ? n_experts : 1); ++x) {
    const std::string from = filled(rule.from, layer, x);
    const StoredTensor* t = take_one(from);
    if (t == nullptr && (rule.optional || rule.as == As::tied) && x == 0) return false;
    if (t == nullptr)
      throw Error(Errc::bad_file, fmt::format("needs the tensor {}; the folder has none of this name", from));
    sources.push_back(t);
  }
  if (sources.empty()) throw Error(Errc::bad_file, fmt::format("config.json: no experts; {} needs some", rule.to));
  add(rule, filled(rule.to, layer, 0), sources);
  return true;
}

void Draft::take_once(std::span<const Rule> rules) {
  for (const Rule& rule : rules) {
    if (rule.from.find("{}") != std::string_view::npos) continue;
    if (rule.as == As::tied && is_tied) {
      if (const auto found = taken_.find(rule.from); found != taken_.end()) {
        found->second = true;  // a copy of the embedding
        note_another_head(*by_name_.find(rule.from)->second);
      }
      continue;
    }
    if (take_layer(rule, 0) || rule.as != As::tied) continue;
    if (!is_bare_)
      throw Error(Errc::bad_file, fmt::format("needs the tensor {}: tie_word_embeddings is false", rule.from));
    notes.push_back(
        fmt::format("the folder is of a model without a head, as embeddings are made by: there is no {}, and the "
                    "file's logits mean nothing",
                    rule.from));
  }
}

void Draft::note_another_head(const StoredTensor& own) {
  for (const Output& output : outputs) {
    if (output.name != "token_embd.weight" || output.slices.size() != 1 || output.slices.front().tensor == nullptr)
      continue;
    const StoredTensor& embedding = *output.slices.front().tensor;
    if (own.type == embedding.type && std::ranges::equal(own.data, embedding.data)) continue;
    notes.push_back(
        fmt::format("{} is not {}, and is left out: tie_word_embeddings is true, so transformers takes the embedding",
                    base::shown(own.name), base::shown(embedding.name)));
  }
}

void Draft::take(std::span<const Rule> rules, const std::vector<bool>& layers) {
  take_once(rules);
  const auto n_layers_taken = std::count(layers.begin(), layers.end(), true);
  std::vector<int64_t> n_taken(rules.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (!layers[layer]) continue;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].from.find("{}") != std::string_view::npos && take_layer(rules[i], static_cast<int64_t>(layer)))
        ++n_taken[i];
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (n_taken[i] != 0 && n_taken[i] != n_layers_taken) {
      throw Error(Errc::bad_file, fmt::format("{} is in {} of {} layers; needs to be in all or none", rules[i].from,
                                              n_taken[i], n_layers_taken));
    }
  }
}

void Draft::take(std::span<const Rule> rules, int64_t first, int64_t last) {
  std::vector<bool> layers(static_cast<size_t>(last));
  std::fill(layers.begin() + static_cast<std::ptrdiff_t>(std::min(first, last)), layers.end(), true);
  take(rules, layers);
}

const StoredTensor& Draft::need(const std::string& name, bool packed) {
  const StoredTensor* t = take_one(name, packed);
  if (t == nullptr)
    throw Error(Errc::bad_file, fmt::format("needs the tensor {}; the folder has none of this name", name));
  return *t;
}

Output& Draft::add(std::string name, std::vector<int64_t> shape, std::vector<Slice> slices) {
  Output output;
  output.name = std::move(name);
  output.shape.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), output.shape.dims.begin());
  output.cols = output.shape.cols();
  output.rows = output.shape.rows();
  output.slices = std::move(slices);
  output.is_f32 = stays_f32(output.name, output.shape.rank);
  outputs.push_back(std::move(output));
  return outputs.back();
}

std::vector<float> Draft::values_of(const std::string& name) {
  constexpr int64_t kValuesMax = 1 << 16;
  const StoredTensor& t = need(name);
  Output one;
  one.rows = t.rows();
  one.cols = t.cols();
  if (one.rows * one.cols > kValuesMax)
    throw Error(Errc::bad_file,
                fmt::format("{} has the shape {}; its values become keys", base::shown(name), shape_text(t.shape)));
  one.slices = {{.tensor = &t, .n_rows = one.rows}};
  std::vector<float> values(static_cast<size_t>(one.rows * one.cols));
  for (int64_t row = 0; row < one.rows; ++row) read_row(one, row, values.data() + row * one.cols);
  return values;
}

void Draft::leave_layers(int64_t first, std::string_view what) {
  int64_t n = 0;
  for (auto& [name, is_taken] : taken_) {
    constexpr std::string_view kBefore = "model.layers.";
    if (is_taken || !name.starts_with(kBefore)) continue;
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(name.data() + kBefore.size(), name.data() + name.size(), layer);
    if (error != std::errc{} || end == name.data() + name.size() || *end != '.' || layer < first) continue;
    is_taken = true;
    ++n;
  }
  if (n > 0) notes.push_back(fmt::format("{} tensors of layers from {} on are left out: {}", n, first, what));
}

void Draft::make(std::string name, std::vector<float> values) {
  Output output;
  output.name = std::move(name);
  output.shape.dims[0] = static_cast<int64_t>(values.size());
  output.cols = output.shape.cols();
  output.is_f32 = true;
  output.values = std::move(values);
  outputs.push_back(std::move(output));
}

void Draft::fill_up(std::string_view name, int64_t n_rows) {
  for (Output& output : outputs) {
    if (output.name != name || output.rows >= n_rows) continue;
    notes.push_back(fmt::format("{}: {} rows of zeros behind the {} of the folder", output.name, n_rows - output.rows,
                                output.rows));
    output.rows = output.shape.dims[0] = n_rows;
  }
}

void Draft::drop_first_rows(std::string_view name, int64_t n_rows) {
  for (Output& output : outputs) {
    if (output.name != name) continue;
    if (output.rows <= n_rows)
      throw Error(Errc::bad_file, fmt::format("{} has {} rows, of which the first {} stand for nothing", output.name,
                                              output.rows, n_rows));
    output.rows = output.shape.dims[0] -= n_rows;
    output.slices.front().first += n_rows;
    output.slices.front().n_rows -= n_rows;
  }
}

void Draft::leave(std::string_view pattern) {
  for (auto& [name, is_taken] : taken_) is_taken = is_taken || matches(pattern, name);
}

void Draft::limit_vocabulary(int64_t n_tokens) {
  for (Output& output : outputs) {
    if (output.name != "token_embd.weight" || output.rows <= n_tokens) continue;
    notes.push_back(
        fmt::format("{}: {} rows beyond the {} tokens are left out", output.name, output.rows - n_tokens, n_tokens));
    output.rows = output.shape.dims[0] = n_tokens;
    output.slices.front().n_rows = n_tokens;
  }
}

void Draft::check_all_taken() const {
  for (const auto& [name, is_taken] : taken_) {
    if (is_taken) continue;
    const StoredTensor& t = *by_name_.at(name);
    throw Error(Errc::unsupported, fmt::format("{} ({} {}): no rule of {} takes it, and it is no known leftover",
                                               base::shown(t.name), t.type, shape_text(t.shape), architecture_));
  }
}

}  // namespace assay::converting
