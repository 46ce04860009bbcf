// See weighing.h.
#include "quantize/weighing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::quantizing {
namespace {

// A column that the text hardly used counts this share of the mean at least: another text may use it.
constexpr float kLeastShare = 1e-3f;

bool has_any(std::string_view name, const std::vector<std::string>& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return name.find(part) != std::string_view::npos; });
}

void keep_wanted(Imatrix& matrix, const QuantizeOptions& options) {
  const bool includes = !options.include_weights.empty();
  if (includes && !options.exclude_weights.empty()) {
    throw Error(Errc::bad_request, "--include-weights and --exclude-weights: one of them at most");
  }
  const std::vector<std::string>& parts = includes ? options.include_weights : options.exclude_weights;
  for (const std::string& part : parts) {
    if (std::ranges::none_of(matrix.entries,
                             [&](const ImatrixEntry& e) { return e.name.find(part) != std::string::npos; })) {
      throw Error(Errc::bad_request, fmt::format("--{}-weights {}: no name in the importance matrix has that in it",
                                                 includes ? "include" : "exclude", base::shown(part)));
    }
  }
  if (!parts.empty())
    std::erase_if(matrix.entries, [&](const ImatrixEntry& e) { return has_any(e.name, parts) != includes; });
  if (matrix.entries.empty())
    throw Error(Errc::bad_request, "--exclude-weights: nothing of the importance matrix is left");
}

// A matrix made of another model would do harm in silence.
void check_model(const gguf::File& file, const Imatrix& matrix, const std::string& path) {
  for (const ImatrixEntry& e : matrix.entries) {
    const gguf::Tensor* tensor = file.find(e.name);
    if (tensor == nullptr) {
      throw Error(Errc::bad_request,
                  fmt::format("{} is of another model: {} is no tensor of this one", path, base::shown(e.name)));
    }
    const tensor::Shape& shape = tensor->view.shape;
    const int64_t wanted = shape.rank < 2 ? 0 : shape.elements() / shape.dims[static_cast<size_t>(shape.rank - 2)];
    if (static_cast<int64_t>(e.sums.size()) != wanted ||
        (e.counts.size() > 1 && static_cast<int64_t>(e.counts.size()) * shape.cols() != wanted)) {
      throw Error(
          Errc::bad_request,
          fmt::format("{} is of another model: {} has {} sums and {} counts there, and {} columns and {} matrices here",
                      path, base::shown(e.name), e.sums.size(), e.counts.size(), shape.cols(),
                      wanted / std::max<int64_t>(shape.cols(), 1)));
    }
  }
}

}  // namespace

Weighing::Weighing(const gguf::File& file, const QuantizeOptions& options) {
  if (!options.imatrix) {
    if (!options.include_weights.empty() || !options.exclude_weights.empty()) {
      throw Error(Errc::bad_request,
                  "--include-weights and --exclude-weights choose from an importance matrix: need --imatrix FILE");
    }
    return;
  }
  path_ = options.imatrix->string();
  matrix_ = read_imatrix(path_);
  check_model(file, matrix_, path_);
  keep_wanted(matrix_, options);
}

std::vector<float> Weighing::of(std::string_view source_name) const {
  const ImatrixEntry* entry = matrix_.find(source_name);
  if (entry == nullptr) return {};
  std::vector<float> importance = entry->importance();
  const auto n_columns = static_cast<size_t>(entry->n_columns());
  for (size_t begin = 0; begin < importance.size(); begin += n_columns) {
    const std::span<float> row = std::span(importance).subspan(begin, n_columns);
    double sum = 0;
    for (const float value : row) sum += value;
    const auto least = static_cast<float>(kLeastShare * sum / static_cast<double>(n_columns));
    float largest = 0;
    for (float& value : row) largest = std::max(largest, value = std::max(value, least));
    if (!(largest >= 1e-30f)) {  // the input was zero throughout
      std::ranges::fill(row, 1.0f);
      continue;
    }
    const int exponent = std::ilogb(
        largest);  // a power of two changes no choice, and keeps sums of squares far from both ends of float32
    for (float& value : row) value = std::ldexp(value, -exponent);
  }
  return importance;
}

std::vector<int64_t> Weighing::experts_without_data(std::string_view source_name) const {
  std::vector<int64_t> experts;
  const ImatrixEntry* entry = matrix_.find(source_name);
  if (entry == nullptr) return experts;
  for (size_t i = 0; i < entry->counts.size(); ++i) {
    if (entry->counts[i] == 0) experts.push_back(static_cast<int64_t>(i));
  }
  return experts;
}

std::string Weighing::described() const {
  if (!given()) return {};
  uint64_t digest = 14695981039346656037u;  // FNV-1a, of words
  const auto add = [&](uint64_t word) { digest = (digest ^ word) * 1099511628211u; };
  for (const ImatrixEntry& e : matrix_.entries) {
    for (const char c : e.name) add(static_cast<unsigned char>(c));
    for (const float sum : e.sums) add(std::bit_cast<uint32_t>(sum));
    for (const float count : e.counts) add(std::bit_cast<uint32_t>(count));
  }
  return fmt::format("importance matrix of {} weights, {:016x}\n", matrix_.entries.size(), digest);
}

}  // namespace assay::quantizing
