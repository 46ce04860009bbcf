// Compares two files, key by key and tensor by tensor.
#include "assay/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"
#include "files/edit_value.h"
#include "files/line_diff.h"
#include "files/model_source.h"
#include "gguf/head.h"
#include "quant/format.h"

namespace assay {
namespace {

using gguf::Value;
using gguf::ValueType;

constexpr size_t kLinesMax = 40;  // shown of one key
constexpr size_t kLongTextBytes = 120;

std::string_view text_of(const Value& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

// The items of an array, each as it would be shown alone.
std::vector<std::string> items_of(const Value& value) {
  std::vector<std::string> items;
  size_t at = 0;
  for (uint64_t i = 0; i < value.count; ++i) {
    Value item{value.element_type, ValueType::u8, 0, {}};
    size_t n = gguf::scalar_bytes(value.element_type);
    if (value.element_type == ValueType::string) {
      uint64_t length = 0;
      std::memcpy(&length, value.bytes.data() + at, sizeof length);
      at += sizeof length;
      n = length;
    }
    item.bytes.assign(value.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                      value.bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
    items.push_back(fmt::format("[{}] {}", i, files::shown_value(item)));
  }
  return items;
}

std::vector<std::string> lines_between(const Value& a, const Value& b) {
  if (a.type != b.type) return {};
  if (a.type == ValueType::string && std::max(a.bytes.size(), b.bytes.size()) > kLongTextBytes)
    return files::line_diff(files::lines_of(text_of(a)), files::lines_of(text_of(b)), kLinesMax);
  if (a.type != ValueType::array || a.element_type != b.element_type || a.element_type == ValueType::array) return {};
  const std::vector<std::string> items_a = items_of(a), items_b = items_of(b);
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::max(items_a.size(), items_b.size()); ++i) {
    const bool in_a = i < items_a.size(), in_b = i < items_b.size();
    if (in_a && in_b && items_a[i] == items_b[i]) continue;
    if (lines.size() >= kLinesMax) {
      lines.emplace_back("...");
      break;
    }
    if (in_a) lines.push_back("-" + items_a[i]);
    if (in_b) lines.push_back("+" + items_b[i]);
  }
  return lines;
}

std::vector<MetadataDifference> metadata_differences(const gguf::Head& a, const gguf::Head& b) {
  std::vector<MetadataDifference> out;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (!other) out.push_back({key, files::shown_value(value), {}, {}});
    if (other && *other != value)
      out.push_back({key, files::shown_value(value), files::shown_value(*other), lines_between(value, *other)});
  }
  for (const auto& [key, value] : b.entries()) {
    if (!a.find(key)) out.push_back({key, {}, files::shown_value(value), {}});
  }
  return out;
}

std::vector<int64_t> dims_of(const tensor::Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

// Elements of a tensor as doubles, a row at a time.
class Rows {
 public:
  explicit Rows(const gguf::Tensor& tensor)
      : view_(tensor.view), format_(quant::find_format(view_.dtype)),
        decoded_(static_cast<size_t>(view_.shape.cols())) {
    const tensor::DType type = view_.dtype;
    const bool is_number = format_ || type == tensor::DType::I8 || type == tensor::DType::I16 ||
                           type == tensor::DType::I32 || type == tensor::DType::I64 || type == tensor::DType::F64;
    if (!is_number)
      throw Error(Errc::unsupported, fmt::format("tensor {} is {}, whose values cannot be compared",
                                                 base::shown(tensor.name), tensor::traits(type).name));
    if (format_) floats_.resize(decoded_.size());
  }
  const std::vector<double>& row(int64_t i) {
    const std::byte* at = view_.row(i);
    if (format_) {
      quant::decode_row(*format_, at, view_.shape.cols(), floats_.data());
      std::ranges::copy(floats_, decoded_.begin());
      return decoded_;
    }
    switch (view_.dtype) {
      case tensor::DType::I8: return load<int8_t>(at);
      case tensor::DType::I16: return load<int16_t>(at);
      case tensor::DType::I32: return load<int32_t>(at);
      case tensor::DType::I64: return load<int64_t>(at);
      default: return load<double>(at);
    }
  }

 private:
  template <class T>
  const std::vector<double>& load(const std::byte* at) {
    for (double& value : decoded_) {
      T number;
      std::memcpy(&number, at, sizeof number);
      at += sizeof number;
      value = static_cast<double>(number);
    }
    return decoded_;
  }

  tensor::TensorView view_;
  const quant::Format* format_;
  std::vector<float> floats_;
  std::vector<double> decoded_;
};

// Sums of one row, folded into those of the tensor in the order of rows.
struct Sums {
  double squares = 0, a_squares = 0, b_squares = 0, products = 0;
  int64_t n_changed = 0, n_not_finite = 0;

  void add(const Sums& row) {
    squares += row.squares;
    a_squares += row.a_squares;
    b_squares += row.b_squares;
    products += row.products;
    n_changed += row.n_changed;
    n_not_finite += row.n_not_finite;
  }
};

bool same_bits(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

struct Worst {
  double error = -1;
  int64_t row = 0, col = 0;
};

Sums compare_row(const std::vector<double>& a, const std::vector<double>& b, int64_t row, Worst& worst) {
  Sums sums;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) ++sums.n_changed;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      ++sums.n_not_finite;
      continue;
    }
    const double error = b[i] - a[i];
    sums.squares += error * error;
    sums.a_squares += a[i] * a[i];
    sums.b_squares += b[i] * b[i];
    sums.products += a[i] * b[i];
    if (std::fabs(error) > worst.error) worst = {std::fabs(error), row, static_cast<int64_t>(i)};
  }
  return sums;
}

std::vector<int64_t> place_of(const tensor::Shape& shape, int64_t row, int64_t col) {
  std::vector<int64_t> place(static_cast<size_t>(shape.rank));
  place.back() = col;
  for (int i = shape.rank - 1; i-- > 0;) {
    place[static_cast<size_t>(i)] = row % shape.dims[static_cast<size_t>(i)];
    row /= shape.dims[static_cast<size_t>(i)];
  }
  return place;
}

struct Pair {
  const gguf::File& file_a;
  const gguf::File& file_b;
  const gguf::Tensor& a;
  const gguf::Tensor& b;
};

// nullopt where it was cancelled.
std::optional<TensorDifference> compare_values(const Pair& pair, const FileProgress& watch, int64_t& done,
                                               int64_t total) {
  TensorDifference out;
  Rows rows_a(pair.a), rows_b(pair.b);
  const tensor::TensorView &view_a = pair.a.view, &view_b = pair.b.view;
  Sums sums;
  Worst worst;
  for (int64_t row = 0; row < view_a.shape.rows(); ++row) {
    if (watch.cancelled && watch.cancelled()) return std::nullopt;
    sums.add(compare_row(rows_a.row(row), rows_b.row(row), row, worst));
    const auto bytes = [&](const tensor::TensorView& view) {
      return std::span(view.row(row), static_cast<size_t>(view.row_bytes()));
    };
    pair.file_a.drop(bytes(view_a));
    pair.file_b.drop(bytes(view_b));
    done += view_a.row_bytes();
    if (watch.progress) watch.progress(done, total, pair.a.name);
  }
  const double n = static_cast<double>(view_a.shape.elements());
  const double n_finite = n - static_cast<double>(sums.n_not_finite);
  out.rmse = n_finite == 0 ? 0 : std::sqrt(sums.squares / n_finite);
  const double rms = n_finite == 0 ? 0 : std::sqrt(sums.a_squares / n_finite);
  out.relative_rmse = out.rmse == 0 ? 0 : rms == 0 ? std::numeric_limits<double>::infinity() : out.rmse / rms;
  out.largest = std::max(worst.error, 0.0);
  out.place = place_of(view_a.shape, worst.row, worst.col);
  out.cosine = sums.products / std::sqrt(sums.a_squares) / std::sqrt(sums.b_squares);
  out.changed = static_cast<double>(sums.n_changed) / n;
  out.n_not_finite = sums.n_not_finite;
  return out;
}

void describe(TensorDifference& out, std::string_view name, const gguf::Tensor* a, const gguf::Tensor* b) {
  out.name = name;
  if (a) out.type_a = tensor::traits(a->view.dtype).name, out.shape_a = dims_of(a->view.shape);
  if (b) out.type_b = tensor::traits(b->view.dtype).name, out.shape_b = dims_of(b->view.shape);
}

// Those of both files, the same and the others; nothing more where it was cancelled.
void compare_tensors_of(const gguf::File& file_a, const gguf::File& file_b, const FileProgress& watch,
                        DiffResult& result) {
  int64_t done = 0, total = 0;
  for (const gguf::Tensor& tensor : file_a.tensors()) total += static_cast<int64_t>(tensor.view.data.size());
  for (const gguf::Tensor& tensor : file_a.tensors()) {
    const gguf::Tensor* other = file_b.find(tensor.name);
    TensorDifference difference;
    if (!other || other->view.shape != tensor.view.shape) {
      difference.kind = other ? TensorDifference::Kind::shape : TensorDifference::Kind::only_a;
      done += static_cast<int64_t>(tensor.view.data.size());
    } else {
      file_a.check_sizes();
      file_b.check_sizes();
      auto found = compare_values({file_a, file_b, tensor, *other}, watch, done, total);
      if (!found) {
        result.cancelled = true;
        return;
      }
      difference = std::move(*found);
      if (difference.changed == 0) {
        ++result.n_tensors_same;
        continue;
      }
    }
    describe(difference, tensor.name, &tensor, other);
    result.tensors.push_back(std::move(difference));
  }
  for (const gguf::Tensor& tensor : file_b.tensors()) {
    if (file_a.find(tensor.name)) continue;
    describe(result.tensors.emplace_back(TensorDifference{.kind = TensorDifference::Kind::only_b}), tensor.name,
             nullptr, &tensor);
  }
}

// What each tensor with other values costs model A.
void measure_effects(const std::string& path, const gguf::File& file_b, const DiffOptions& options,
                     DiffResult& result) {
  std::vector<TensorCandidate> candidates;
  std::vector<TensorDifference*> of;
  for (TensorDifference& tensor : result.tensors) {
    if (tensor.kind != TensorDifference::Kind::values) continue;
    candidates.push_back({tensor.name, tensor.type_b, file_b.find(tensor.name)->view.data});
    of.push_back(&tensor);
  }
  const auto model = Model::load(path);
  const std::string_view text = options.kld_text.empty() ? effect_text() : std::string_view(options.kld_text);
  const std::vector<TokenId> ids =
      model->tokenizer()->encode(text, {.parse_special = false, .add_bos = {}, .add_eos = false});
  TensorEffectOptions asked;
  asked.estimate = options.kld_estimate;
  asked.n_chunk = options.n_chunk;
  asked.n_chunks_max = options.n_chunks_max;
  asked.n_threads = options.n_threads;
  asked.cancelled = options.watch.cancelled;
  asked.progress = options.kld_progress;
  file_b.check_sizes();
  TensorEffects found = tensor_effects(model, ids, candidates, asked);
  for (size_t i = 0; i < of.size(); ++i) {
    of[i]->kld = found.effects[i].kl_divergence;
    of[i]->kld_estimated = found.effects[i].estimated;
    of[i]->kld_missing = std::move(found.effects[i].why_none);
  }
  result.kld_all = found.all.kl_divergence;
  result.n_scored = found.n_scored;
  result.n_tokens_run = found.n_tokens_run;
  result.has_kld = true;
  result.cancelled = found.cancelled;
}

// The worst first. A NaN is worse than any number.
double rank_of(double x) { return std::isnan(x) ? -std::numeric_limits<double>::infinity() : -x; }

void sort_worst_first(DiffResult& result) {
  std::ranges::stable_sort(result.tensors, [&](const TensorDifference& x, const TensorDifference& y) {
    if (x.kind != y.kind) return x.kind < y.kind;
    if (result.has_kld && x.kld.has_value() != y.kld.has_value())
      return y.kld.has_value();  // what could not be measured is not overlooked
    if (x.kld && y.kld && rank_of(*x.kld) != rank_of(*y.kld)) return rank_of(*x.kld) < rank_of(*y.kld);
    return rank_of(x.relative_rmse) < rank_of(y.relative_rmse);
  });
}

}  // namespace

DiffResult diff_files(const std::string& a, const std::string& b, const DiffOptions& options) {
  DiffResult result;
  result.a = a;
  result.b = b;
  const files::ModelSource source_a(a, options.temporary_folder, options.watch),
      source_b(b, options.temporary_folder, options.watch);
  for (const files::ModelSource* source : {&source_a, &source_b})
    result.notes.insert(result.notes.end(), source->notes().begin(), source->notes().end());
  result.cancelled = source_a.cancelled() || source_b.cancelled();
  if (result.cancelled) return result;
  const gguf::File file_a = gguf::File::open(source_a.file()), file_b = gguf::File::open(source_b.file());
  result.metadata = metadata_differences(gguf::Head(file_a), gguf::Head(file_b));
  compare_tensors_of(file_a, file_b, options.watch, result);
  if (options.kld && !result.cancelled) measure_effects(source_a.file(), file_b, options, result);
  sort_worst_first(result);
  return result;
}

}  // namespace assay
