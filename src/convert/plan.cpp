// See plan.h.
#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/vocabulary.h"
#include "quant/encode/encoder.h"
#include "quantize/recipe.h"

namespace assay::converting {
namespace {

using quantizing::MixId;
using tensor::DType;

constexpr uint64_t kTokenizerBytesMax = uint64_t{256} << 20;

// The type of the folder's own matrices.
DType own_type(const Folder& folder) {
  for (const StoredTensor& t : folder.tensors()) {
    if (t.shape.size() >= 2 && (t.dtype == DType::BF16 || t.dtype == DType::F16)) return *t.dtype;
  }
  return DType::F16;
}

bool is_auto(std::string_view type) {
  std::string lower(type);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower == "auto";
}

const quantizing::Mix& mix_of(DType dtype) { return quantizing::require_mix(tensor::traits(dtype).name); }

// Of a mix with blocks: the recipe of `assay quantize`, over what the file would be without it.
void choose_blocks(Plan& plan, const quantizing::Mix& mix, DType base) {
  Draft& d = *plan.draft;
  quantizing::ModelFacts facts{d.architecture(), d.n_layers, d.n_heads, d.n_kv_heads, d.n_experts};
  std::vector<quantizing::RecipeTensor> tensors;
  for (const Output& output : d.outputs)
    tensors.push_back({output.name,
                       output.scales != nullptr ? DType::MXFP4
                       : output.is_f32          ? DType::F32
                                                : base,
                       output.shape});
  quantizing::RecipeOptions recipe;
  recipe.mix = &mix;
  const std::vector<quantizing::Choice> choices = quantizing::choose_types(tensors, facts, recipe);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (d.outputs[i].scales != nullptr) {  // it is small already, and its bytes are kept
      plan.types.push_back(DType::MXFP4);
      continue;
    }
    const quantizing::Choice& choice = choices[i];
    const std::string_view name = tensor::traits(choice.dtype).name;
    if (choice.dtype != tensors[i].dtype &&
        (choice.needs_matrix || quant::encode::find_encoder(choice.dtype) == nullptr)) {
      throw Error(Errc::bad_request, fmt::format("{} would be {}, which {}; needs another type", tensors[i].name, name,
                                                 choice.needs_matrix ? "is of no use without an importance matrix"
                                                                     : "assay reads but does not write"));
    }
    if (choice.wanted) {
      d.notes.push_back(fmt::format("{}: {} columns are not whole blocks of {}: {} instead", tensors[i].name,
                                    tensors[i].shape.cols(), tensor::traits(*choice.wanted).name, name));
    }
    plan.types.push_back(choice.dtype);
  }
}

void choose_types(Plan& plan, const ConvertOptions& options) {
  Draft& d = *plan.draft;
  const DType own = own_type(d.folder);
  const quantizing::Mix& mix = is_auto(options.outtype) ? mix_of(own) : quantizing::require_mix(options.outtype);
  if (mix.id == MixId::copy)
    throw Error(Errc::bad_request, "--outtype COPY: a folder has nothing to copy; auto keeps its type");
  std::stable_sort(d.outputs.begin(), d.outputs.end(),
                   [](const Output& a, const Output& b) { return quantizing::goes_before(a.name, b.name); });
  plan.type = mix.name;
  if (mix.id == MixId::f32 || mix.id == MixId::f16 || mix.id == MixId::bf16) {
    for (const Output& output : d.outputs)
      plan.types.push_back(output.scales != nullptr ? DType::MXFP4 : output.is_f32 ? DType::F32 : mix.default_type);
  } else {
    if (options.keep_nonfinite)
      throw Error(Errc::bad_request, fmt::format("--keep-nonfinite: {} has no values that are not finite", mix.name));
    choose_blocks(plan, mix, own);
  }
  d.head.set("general.file_type", gguf::Value::of(mix.file_type));
}

void note_config(Draft& d) {
  for (const std::string& key : d.config.unread())
    d.notes.push_back(fmt::format("config.json: {} is not known for {} and has no effect", key, d.architecture()));
  if (d.config.defaults_used().empty()) return;
  d.notes.push_back(fmt::format("config.json leaves out, and Hugging Face's class has as defaults: {}",
                                fmt::join(d.config.defaults_used(), ", ")));
}

}  // namespace

DrawnDraft draw_draft(const Folder& folder, bool text_only) {
  DrawnDraft drawn;
  drawn.family = &family_of(folder.config());
  drawn.class_name = *folder.config().find("architectures")->array()->front().string();
  const FamilyOptions& family = drawn.family->options;
  const Json* quantised = folder.config().find("quantization_config");
  if (quantised != nullptr && !quantised->is_null() &&
      !(family.reads_mxfp4 && quantised->text("quant_method") == "mxfp4")) {
    throw Error(Errc::unsupported,
                fmt::format("config.json: quantization_config says {}; assay converts checkpoints of F32, F16 and BF16",
                            base::shown(quantised->text("quant_method"))));
  }
  drawn.draft = std::make_unique<Draft>(folder, std::string(drawn.family->architecture), drawn.family->defaults,
                                        text_only, Draft::Names{family.prefix, family.bare});
  drawn.family->draw(*drawn.draft);
  drawn.draft->check_all_taken();
  return drawn;
}

Plan make_plan(const Folder& folder, const ConvertOptions& options) {
  Plan plan;
  DrawnDraft drawn = draw_draft(folder, options.text_only);
  plan.family = drawn.family;
  plan.draft = std::move(drawn.draft);
  const FamilyOptions& family = plan.family->options;
  Draft& d = *plan.draft;
  d.head.set("general.type", gguf::Value::of("model"));
  std::filesystem::path name = std::filesystem::weakly_canonical(folder.path());
  if (name.filename().empty()) name = name.parent_path();
  d.head.set("general.name", gguf::Value::of(name.filename().string()));
  d.head.set("general.quantization_version", gguf::Value::of(uint32_t{2}));
  if (folder.has("tokenizer.json"))
    plan.tokenizer = read_tokenizer_json(folder.text_of("tokenizer.json", kTokenizerBytesMax));
  const int64_t n_tokens = add_vocabulary(d, *plan.family, plan.tokenizer, {options.pre_tokenizer});
  if (family.cuts_vocabulary) d.limit_vocabulary(n_tokens);
  choose_types(plan, options);
  note_config(d);
  for (size_t i = 0; i < d.outputs.size(); ++i) d.head.declare(d.outputs[i].name, plan.types[i], d.outputs[i].shape);
  d.notes.insert(d.notes.end(), folder.notes().begin(), folder.notes().end());
  return plan;
}

}  // namespace assay::converting
