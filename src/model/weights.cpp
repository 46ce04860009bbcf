// See weights.h.
#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "assay/error.h"
#include "quant/format.h"

namespace assay::model {
namespace {

std::string describe(const tensor::Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " x ", shape.dims[static_cast<size_t>(i)]);
  return text;
}

void check_vector(const gguf::Tensor& tensor, int64_t n) {
  const tensor::Shape& shape = tensor.view.shape;
  if (shape.rows() != 1 || shape.cols() != n) {
    throw Error(Errc::bad_file, fmt::format("{}: needs {} elements, found {}", tensor.name, n, describe(shape)));
  }
  if (tensor.view.dtype != tensor::DType::F32) {
    throw Error(Errc::unsupported, fmt::format("{}: norms and biases are served in F32, found {}", tensor.name,
                                               traits(tensor.view.dtype).name));
  }
}

// Frequencies of old converters, which RoPE needs no more.
bool is_of_no_use(std::string_view name) {
  return name.find(".attn_rot_embd") != std::string_view::npos ||
         name.find(".rotary_emb.inv_freq") != std::string_view::npos;
}

}  // namespace

const gguf::Tensor& Weights::require(const std::string& name) const {
  const gguf::Tensor* tensor = file_->find(name);
  if (tensor == nullptr) throw Error(Errc::bad_file, fmt::format("{}: the file has no tensor of this name", name));
  return *tensor;
}

ops::WeightId Weights::enter(const gguf::Tensor& tensor) {
  const auto [entry, is_new] =
      entered_.try_emplace(std::string(tensor.name), static_cast<ops::WeightId>(plan_->weights.size()));
  if (is_new) plan_->weights.push_back({std::string(tensor.name), tensor.view});
  return entry->second;
}

ops::WeightId Weights::matrix(const std::string& name, int64_t rows, int64_t cols) {
  const gguf::Tensor& tensor = require(name);
  const tensor::Shape& shape = tensor.view.shape;
  if (shape.rank > 2 || shape.rows() != rows || shape.cols() != cols) {
    throw Error(Errc::bad_file, fmt::format("{}: needs {} x {}, found {}", name, rows, cols, describe(shape)));
  }
  if (quant::find_format(tensor.view.dtype) == nullptr) {
    throw Error(Errc::unsupported, fmt::format("{}: {} is no weight format", name, traits(tensor.view.dtype).name));
  }
  return enter(tensor);
}

ops::WeightId Weights::vector(const std::string& name, int64_t n) {
  const gguf::Tensor& tensor = require(name);
  check_vector(tensor, n);
  return enter(tensor);
}

ops::WeightId Weights::experts(const std::string& name, int64_t n_experts, int64_t rows, int64_t cols) {
  const gguf::Tensor& tensor = require(name);
  const tensor::Shape& shape = tensor.view.shape;
  if (shape.rank != 3 || shape.dims[0] != n_experts || shape.dims[1] != rows || shape.cols() != cols) {
    throw Error(Errc::bad_file,
                fmt::format("{}: needs {} x {} x {}, found {}", name, n_experts, rows, cols, describe(shape)));
  }
  if (quant::find_format(tensor.view.dtype) == nullptr) {
    throw Error(Errc::unsupported, fmt::format("{}: {} is no weight format", name, traits(tensor.view.dtype).name));
  }
  return enter(tensor);
}

ops::WeightId Weights::matrix_rows(const std::string& name, int64_t rows, int64_t cols, int64_t begin, int64_t n) {
  return part_of_rows(matrix(name, rows, cols), fmt::format("{} rows {}..{}", name, begin, begin + n), begin, n, cols);
}

ops::WeightId Weights::part_of_rows(ops::WeightId whole, const std::string& part_name, int64_t begin, int64_t n,
                                    int64_t cols) {
  const auto [entry, is_new] = entered_.try_emplace(part_name, static_cast<ops::WeightId>(plan_->weights.size()));
  if (is_new) {
    ops::Weight part = plan_->weights[static_cast<size_t>(whole)];
    part.name = part_name;
    const auto row_bytes = static_cast<size_t>(part.view.row_bytes());
    part.view.data = part.view.data.subspan(static_cast<size_t>(begin) * row_bytes, static_cast<size_t>(n) * row_bytes);
    part.view.shape = {};
    part.view.shape.rank = 2;
    part.view.shape.dims = {n, cols, 1, 1};
    plan_->weights.push_back(std::move(part));
  }
  return entry->second;
}

ops::WeightId Weights::expert_matrix(const std::string& name, int64_t n_experts, int64_t rows, int64_t cols,
                                     int64_t i) {
  const ops::WeightId whole = experts(name, n_experts, rows, cols);
  return part_of_rows(whole, fmt::format("{} matrix {}", name, i), i * rows, rows, cols);
}

ops::WeightId Weights::stacked_vector(const std::string& name, int64_t rows, int64_t n) {
  const gguf::Tensor& tensor = require(name);
  const tensor::Shape& shape = tensor.view.shape;
  if (shape.rows() != rows || shape.cols() != n)
    throw Error(Errc::bad_file, fmt::format("{}: needs {} x {}, found {}", name, rows, n, describe(shape)));
  if (tensor.view.dtype != tensor::DType::F32) {
    throw Error(Errc::unsupported,
                fmt::format("{}: norms and biases are served in F32, found {}", name, traits(tensor.view.dtype).name));
  }
  return enter(tensor);
}

ops::WeightId Weights::elements(const std::string& name, int64_t n) {
  const gguf::Tensor& tensor = require(name);
  if (tensor.view.shape.elements() != n)
    throw Error(Errc::bad_file, fmt::format("{}: needs {} elements, found {}", name, n, describe(tensor.view.shape)));
  if (tensor.view.dtype != tensor::DType::F32) {
    throw Error(Errc::unsupported, fmt::format("{}: is served in F32, found {}", name, traits(tensor.view.dtype).name));
  }
  return enter(tensor);
}

ops::WeightId Weights::vector_part(const std::string& name, int64_t n_all, int64_t begin, int64_t n) {
  const ops::WeightId whole = vector(name, n_all);
  const std::string part_name = fmt::format("{} elements {}..{}", name, begin, begin + n);
  const auto [entry, is_new] = entered_.try_emplace(part_name, static_cast<ops::WeightId>(plan_->weights.size()));
  if (is_new) {
    ops::Weight part = plan_->weights[static_cast<size_t>(whole)];
    part.name = part_name;
    part.view.data =
        part.view.data.subspan(static_cast<size_t>(begin) * sizeof(float), static_cast<size_t>(n) * sizeof(float));
    part.view.shape = {};
    part.view.shape.rank = 1;
    part.view.shape.dims = {n, 1, 1, 1};
    plan_->weights.push_back(std::move(part));
  }
  return entry->second;
}

ops::WeightId Weights::optional_matrix(const std::string& name, int64_t rows, int64_t cols) {
  return file_->find(name) == nullptr ? ops::kNone : matrix(name, rows, cols);
}

ops::WeightId Weights::optional_vector(const std::string& name, int64_t n) {
  return file_->find(name) == nullptr ? ops::kNone : vector(name, n);
}

std::vector<float> Weights::optional_values(const std::string& name, int64_t n) {
  const gguf::Tensor* tensor = file_->find(name);
  if (tensor == nullptr) return {};
  check_vector(*tensor, n);
  read_otherwise_.insert(name);
  std::vector<float> values(static_cast<size_t>(n));
  std::memcpy(values.data(), tensor->view.data.data(), values.size() * sizeof(float));
  return values;
}

void Weights::check_all_used(std::string_view architecture) const {
  for (const gguf::Tensor& tensor : file_->tensors()) {
    const std::string name(tensor.name);
    const bool ignored =
        std::ranges::any_of(ignored_, [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (ignored || entered_.contains(name) || read_otherwise_.contains(name) || is_of_no_use(name)) continue;
    throw Error(Errc::unsupported,
                fmt::format("{}: a tensor that this build's {} does not use; running without it would give wrong "
                            "answers",
                            name, architecture));
  }
}

}  // namespace assay::model
