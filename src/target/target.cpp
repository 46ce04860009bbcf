// Measures each tensor in one type, estimates it in the others by their squared errors, and allots.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "assay/error.h"
#include "assay/quantize_target.h"
#include "base/processors.h"
#include "base/shown.h"
#include "quantize/mixes.h"
#include "quantize/name_rules.h"
#include "quantize/plan.h"
#include "quantize/rows.h"
#include "target/allot.h"
#include "target/divergence.h"

namespace assay {
namespace {

using quant::encode::Effort;
using quantizing::PlannedTensor;
using tensor::DType;

constexpr int64_t kTokensMin = 16;
constexpr int64_t kSampledRows = 64;       // of a tensor, for the errors of its other types
constexpr uint64_t kNewKeysBytes = 16384;  // what quantising adds to the metadata, at most
constexpr uint64_t kAlignment = 32;

// What a tensor may become, by its columns. Formats that need an importance matrix only with one.
std::vector<DType> types_for(int64_t n_columns, bool has_matrix) {
  if (n_columns % 256 == 0) {
    std::vector<DType> types = {DType::Q3_K, DType::IQ4_XS, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q8_0};
    if (!has_matrix) return types;
    types.insert(types.begin(), {DType::IQ2_XXS, DType::IQ2_XS, DType::IQ2_S, DType::IQ3_XXS, DType::IQ3_S});
    return types;
  }
  if (n_columns % 32 == 0) return {DType::IQ4_NL, DType::Q5_0, DType::Q5_1, DType::Q8_0};
  return {DType::F16};
}

uint64_t padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t bytes_of(const tensor::Shape& shape, DType dtype) {
  const tensor::DTypeTraits& t = tensor::traits(dtype);
  return static_cast<uint64_t>(shape.elements() / t.block_elements * t.block_bytes);
}

struct Tensor {
  const PlannedTensor* planned = nullptr;
  std::vector<DType> types;
  std::vector<target::Candidate> candidates;
};

std::string regex_of(const std::string& name) {
  std::string text = "^";
  for (const char c : name) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_plain) text += '\\';
    text += c;
  }
  return text + "$";
}

class Chooser {
 public:
  Chooser(const std::filesystem::path& in, std::span<const TokenId> ids, const TargetOptions& options)
      : options_(options), quantize_(with_type(options.quantize)),
        model_(Model::load(in.string(), {.tokenizer = false})), file_(gguf::File::open(in)),
        weighing_(file_, quantize_), plan_(quantizing::make_plan(file_, quantize_, weighing_.given())),
        pool_(base::pool_threads(quantize_.n_threads)),
        ids_(ids.first(std::min(ids.size(), static_cast<size_t>(options.n_tokens_max)))) {}

  TargetChoice choose() {
    sort_out();
    const uint64_t limit = limit_of_candidates();
    divergence_.emplace(model_, ids_, pool_);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (options_.cancelled && options_.cancelled()) {
        TargetChoice choice;
        choice.cancelled = true;
        return choice;
      }
      if (options_.progress) {
        options_.progress(tensors_[i].planned->name, static_cast<int64_t>(i), static_cast<int64_t>(tensors_.size()));
      }
      measure(tensors_[i], static_cast<double>(limit) / static_cast<double>(n_chosen_elements_));
    }
    return allotted(limit);
  }

 private:
  static QuantizeOptions with_type(QuantizeOptions options) {
    if (options.type.empty()) options.type = "Q4_K_M";
    return options;
  }

  // Which tensors have a choice; what all else takes.
  void sort_out() {
    const quantizing::NameRules rules(quantize_.tensor_types);
    fixed_bytes_ = file_.file_bytes() + kNewKeysBytes;
    for (const gguf::Tensor& t : file_.tensors()) fixed_bytes_ -= std::min<uint64_t>(t.view.data.size(), fixed_bytes_);
    for (const PlannedTensor& t : plan_.tensors) {
      const tensor::Shape& shape = t.source->view.shape;
      n_elements_ += static_cast<uint64_t>(shape.elements());
      const quantizing::Kind kind = quantizing::kind_of(t.name);
      const bool is_fixed = rules.type_of(t.name) ||
                            (quantize_.output_tensor_type && kind == quantizing::Kind::output) ||
                            (quantize_.token_embedding_type && kind == quantizing::Kind::embedding);
      if (!t.choice.quantizable || is_fixed) {
        const uint64_t bytes = bytes_of(shape, t.choice.dtype);
        fixed_bytes_ += padded(bytes);
        fixed_data_bytes_ += bytes;
        continue;
      }
      n_chosen_elements_ += static_cast<uint64_t>(shape.elements());
      tensors_.push_back({&t, types_for(shape.cols(), weighing_.has(t.source->name)), {}});
      for (const DType dtype : tensors_.back().types) {
        tensors_.back().candidates.push_back({padded(bytes_of(shape, dtype)), 0});
      }
    }
    if (tensors_.empty()) throw Error(Errc::bad_request, "there is no tensor whose type could be chosen");
  }

  uint64_t limit_of_candidates() const {
    const double data = options_.bits_per_weight / 8 * static_cast<double>(n_elements_);
    const uint64_t limit = options_.bytes_max != 0 ? options_.bytes_max : static_cast<uint64_t>(data);
    const uint64_t fixed = options_.bytes_max != 0 ? fixed_bytes_ : fixed_data_bytes_;
    std::vector<std::vector<target::Candidate>> all;
    for (const Tensor& t : tensors_) all.push_back(t.candidates);
    const uint64_t least = target::least_bytes(all) + fixed;
    if (least > limit) {
      throw Error(Errc::bad_request,
                  fmt::format("{} bytes are asked for at most; the smallest types there are {}make {} bytes ({:.3f} "
                              "bits a weight)",
                              limit, weighing_.given() ? "" : "without an importance matrix ", least,
                              8.0 * static_cast<double>(least) / static_cast<double>(n_elements_)));
    }
    return limit - fixed;
  }

  // The sum of squared errors over some rows, weighed as the encoder weighs them.
  double error_of(const Tensor& t, DType dtype, std::span<const float> importance) {
    const tensor::TensorView& view = t.planned->source->view;
    const int64_t n_rows = view.shape.rows(), n = std::min(n_rows, kSampledRows);
    quantizing::RowEncoder encoder(view, dtype, importance, Effort::fast, pool_);
    return encoder.error_of_rows(n, [&](int64_t i) { return i * n_rows / n; });
  }

  void measure(Tensor& t, double bytes_per_weight) {
    const tensor::TensorView& view = t.planned->source->view;
    const std::vector<float> importance = weighing_.of(t.planned->source->name);
    // The largest type that a file of this size could have throughout: estimates then reach least far.
    size_t reference = 0;
    for (size_t i = 0; i < t.types.size(); ++i) {
      const double of_type = static_cast<double>(t.candidates[i].bytes) / static_cast<double>(view.shape.elements());
      if (of_type <= bytes_per_weight) reference = i;
    }
    if (t.types.size() == 1) return;
    quantizing::RowEncoder encoder(view, t.types[reference], importance, Effort::fast, pool_);
    std::vector<std::byte> bytes(static_cast<size_t>(view.shape.rows() * encoder.row_bytes()));
    if (const auto bad = encoder.encode(0, view.shape.rows(), bytes.data())) {
      throw Error(Errc::bad_file, fmt::format("{}: value {} is {}: such weights are not quantised",
                                              base::shown(t.planned->source->name), bad->index, bad->value));
    }
    const double measured = divergence_->with(t.planned->source->name, t.types[reference], bytes);
    if (measured < 0) {  // not read in a run: as the mix has it
      keep_of_mix(t);
      return;
    }
    const double of_reference = error_of(t, t.types[reference], importance);
    for (size_t i = 0; i < t.types.size(); ++i) {
      const double error = i == reference ? of_reference : error_of(t, t.types[i], importance);
      t.candidates[i].cost = of_reference > 0 ? measured * error / of_reference : 0;
    }
  }

  static void keep_of_mix(Tensor& t) {
    t.types = {t.planned->choice.dtype};
    t.candidates = {{padded(bytes_of(t.planned->source->view.shape, t.types[0])), 0}};
  }

  TargetChoice allotted(uint64_t limit) const {
    std::vector<std::vector<target::Candidate>> all;
    for (const Tensor& t : tensors_) all.push_back(t.candidates);
    const std::vector<size_t> chosen = target::allot(all, std::max(limit, target::least_bytes(all)));
    TargetChoice choice;
    choice.bytes = fixed_bytes_;
    uint64_t data_bytes = fixed_data_bytes_;
    std::map<DType, uint64_t> by_type;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& t = tensors_[i];
      const target::Candidate& c = t.candidates[chosen[i]];
      const DType dtype = t.types[chosen[i]];
      const uint64_t bytes = bytes_of(t.planned->source->view.shape, dtype);
      choice.tensors.push_back({t.planned->name, std::string(tensor::traits(dtype).name), c.cost, bytes});
      choice.bytes += c.bytes;
      choice.kl_divergence += c.cost;
      data_bytes += bytes;
      by_type[dtype] += bytes;
    }
    choice.bits_per_weight = 8.0 * static_cast<double>(data_bytes) / static_cast<double>(n_elements_);
    choice.type = type_of_most(by_type);
    return choice;
  }

  std::string type_of_most(const std::map<DType, uint64_t>& by_type) const {
    if (!options_.quantize.type.empty()) return options_.quantize.type;
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const DType most = std::max_element(by_type.begin(), by_type.end(), fewer)->first;
    for (const quantizing::Mix& mix : quantizing::all_mixes()) {
      if (mix.default_type == most) return std::string(mix.name);
    }
    return quantize_.type;
  }

  const TargetOptions& options_;
  QuantizeOptions quantize_;
  std::shared_ptr<const Model> model_;
  gguf::File file_;
  quantizing::Weighing weighing_;
  quantizing::Plan plan_;
  base::ThreadPool pool_;
  std::span<const TokenId> ids_;
  std::optional<target::Divergence> divergence_;  // once the size is known to be possible
  std::vector<Tensor> tensors_;
  uint64_t n_elements_ = 0, n_chosen_elements_ = 0;
  uint64_t fixed_bytes_ = 0;       // of the file: head, and tensors without a choice
  uint64_t fixed_data_bytes_ = 0;  // of those tensors alone
};

}  // namespace

std::vector<std::pair<std::string, std::string>> TargetChoice::rules() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const TargetTensor& t : tensors) all.emplace_back(regex_of(t.name), t.type);
  return all;
}

TargetChoice choose_types(const std::filesystem::path& in, std::span<const TokenId> ids, const TargetOptions& options) {
  if ((options.bytes_max != 0) == (options.bits_per_weight > 0)) {
    throw Error(Errc::bad_request, "a size in bytes or bits a weight: one of them is needed");
  }
  if (!options.quantize.prune_layers.empty()) {
    throw Error(Errc::bad_request, "types are measured on the whole model: --prune-layers has to come first, alone");
  }
  const auto n = std::min(static_cast<int64_t>(ids.size()), options.n_tokens_max);
  if (n < kTokensMin) {
    throw Error(Errc::bad_request, fmt::format("the text has {} tokens; {} are needed at least", n, kTokensMin));
  }
  return Chooser(in, ids, options).choose();
}

}  // namespace assay
