// The file as a container, and the numbers in it: what gguf/ has checked on opening is stated, what
// it has no reason to refuse is looked at: gaps and overlaps, a tail that was never written, bytes
// in the other order, scales that are no numbers, weights of absurd size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "engine/model_state.h"
#include "quant/format.h"
#include "verify/definitions.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

constexpr double kRmsMax = 1e3;           // of a tensor's values: models have 1e-3 to 1e2
constexpr int64_t kTailBytes = 16 << 10;  // zeros at the end of the last tensor that no model has
constexpr int64_t kBlocksMax = 4096;      // looked at for the order of bytes
constexpr int64_t kDropBytes = 16 << 20;  // of a tensor looked at before their pages are given back

void check_layout(const gguf::File& file, Findings& findings) {
  std::vector<const gguf::Tensor*> in_order;
  for (const gguf::Tensor& tensor : file.tensors()) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [](const gguf::Tensor* a, const gguf::Tensor* b) {
    return a->shard != b->shard ? a->shard < b->shard : a->file_offset < b->file_offset;
  });
  const gguf::Tensor* before = nullptr;
  for (const gguf::Tensor* tensor : in_order) {
    if (tensor->file_offset % file.alignment() != 0) {
      findings.fail(fmt::format("{}: begins at byte {}, which is no multiple of the file's alignment {}", tensor->name,
                                tensor->file_offset, file.alignment()));
    }
    if (before != nullptr && before->shard == tensor->shard) {
      const uint64_t end = before->file_offset + before->view.data.size();
      if (end > tensor->file_offset) {
        findings.fail(
            fmt::format("{} and {} share {} bytes of the file", before->name, tensor->name, end - tensor->file_offset));
      } else if (tensor->file_offset - end >= file.alignment()) {
        findings.warn(fmt::format("{} bytes between {} and {} belong to no tensor", tensor->file_offset - end,
                                  before->name, tensor->name));
      }
    }
    before = tensor;
  }
  if (before == nullptr) return;
  const std::span<const std::byte> data = before->view.data;
  const auto n_tail = std::min<size_t>(kTailBytes, data.size() / 2);
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  if (n_tail >= 1024 && std::all_of(data.end() - static_cast<std::ptrdiff_t>(n_tail), data.end(), is_zero)) {
    findings.fail(
        fmt::format("{}, the last tensor of the file, ends with {} zero bytes: the file was not "
                    "written to its end",
                    before->name, n_tail));
  }
}

// Mean and spread of the exponents that 16- or 32-bit floats of the file have as they stand, and
// with their bytes swapped. Weights and scales lie within a few powers of two of each other;
// swapped, their exponents are noise.
class ByteOrder {
 public:
  void add(const std::byte* bytes, int n_bytes, int exponent_bits) {
    for (const bool swapped : {false, true}) {
      uint32_t word = 0;
      for (int i = 0; i < n_bytes; ++i)
        word |= std::to_integer<uint32_t>(bytes[swapped ? n_bytes - 1 - i : i]) << (8 * i);
      const uint32_t magnitude = word & ((uint32_t{1} << (8 * n_bytes - 1)) - 1);
      if (magnitude == 0) continue;
      sums_[swapped].add(static_cast<double>(magnitude >> (8 * n_bytes - 1 - exponent_bits)));
    }
  }
  // Noise over all exponents has a spread of 2^bits / sqrt(12).
  bool is_swapped(int exponent_bits) const {
    const double noise = std::ldexp(1.0, exponent_bits) / std::sqrt(12.0);
    return sums_[0].n >= 64 && sums_[0].spread() > 0.7 * noise && sums_[1].spread() < 0.35 * noise;
  }

 private:
  struct Sums {
    double n = 0, sum = 0, squares = 0;
    void add(double x) { n += 1, sum += x, squares += x * x; }
    double spread() const { return n == 0 ? 0 : std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n))); }
  };
  Sums sums_[2];
};

// Where a format keeps its first float, its bytes and exponent bits; n_bytes 0: MXFP4, whose scale
// is one byte.
struct FirstFloat {
  int offset = 0, n_bytes = 2, exponent_bits = 5;
};
FirstFloat first_float(tensor::DType dtype) {
  using tensor::DType;
  switch (dtype) {
    case DType::F32: return {0, 4, 8};
    case DType::BF16: return {0, 2, 8};
    case DType::Q2_K: return {80};
    case DType::Q3_K: return {108};
    case DType::Q6_K: return {208};
    case DType::TQ1_0: return {52};
    case DType::TQ2_0: return {64};
    case DType::MXFP4: return {0, 0, 0};
    default: return {};
  }
}

// Gives back what was read of a tensor from the front: the kernel maps many pages around each that is looked at.
class Behind {
 public:
  Behind(const gguf::File& file, std::span<const std::byte> data) : file_(file), data_(data) {}
  ~Behind() { file_.drop(data_); }
  Behind(const Behind&) = delete;
  Behind& operator=(const Behind&) = delete;
  void reached(int64_t at) {
    if (at - kept_ < kDropBytes) return;
    file_.drop(data_.subspan(static_cast<size_t>(kept_), static_cast<size_t>(at - kept_)));
    kept_ = at;
  }

 private:
  const gguf::File& file_;
  std::span<const std::byte> data_;
  int64_t kept_ = 0;
};

// All blocks of a quantised tensor, blocks at a stride of one of floats: whether their scales are
// numbers.
void check_scales(const gguf::File& file, const gguf::Tensor& tensor, bool quick, Findings& findings) {
  const tensor::DTypeTraits& t = tensor::traits(tensor.view.dtype);
  const auto n_blocks = static_cast<int64_t>(tensor.view.data.size()) / t.block_bytes;
  const int64_t n_looked_at = quick ? 1 << 16 : t.block_elements == 1 ? 1 << 20 : n_blocks;
  const int64_t stride = std::max<int64_t>(1, n_blocks / std::max<int64_t>(1, n_looked_at));
  const int64_t blocks_per_row = std::max<int64_t>(1, tensor.view.shape.cols() / t.block_elements);
  int64_t n_bad = 0, first_bad = -1;
  Behind behind(file, tensor.view.data);
  for (int64_t i = 0; i < n_blocks; i += stride) {
    behind.reached(i * t.block_bytes);
    if (scales_are_finite(t.dtype, tensor.view.data.data() + i * t.block_bytes)) continue;
    if (n_bad++ == 0) first_bad = i;
  }
  if (n_bad == 0) return;
  findings.fail(
      fmt::format("{} ({}): {} of {} blocks looked at have a scale that is NaN or infinite, first "
                  "row {}, block {}",
                  tensor.name, t.name, n_bad, (n_blocks + stride - 1) / stride, first_bad / blocks_per_row,
                  first_bad % blocks_per_row));
}

bool is_all_zero(const gguf::File& file, std::span<const std::byte> data) {
  Behind behind(file, data);
  for (size_t at = 0; at < data.size(); at += kDropBytes) {
    behind.reached(static_cast<int64_t>(at));
    const auto part = data.subspan(at, std::min<size_t>(kDropBytes, data.size() - at));
    if (!std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{0}; })) return false;
  }
  return true;
}

// The size of a tensor's values, from blocks spread over it.
void check_size(const gguf::File& file, const gguf::Tensor& tensor, Findings& findings) {
  const tensor::DTypeTraits& t = tensor::traits(tensor.view.dtype);
  const auto n_blocks = static_cast<int64_t>(tensor.view.data.size()) / t.block_bytes;
  const int64_t n_wanted = std::max<int64_t>(8, 2048 / t.block_elements);
  const int64_t stride = std::max<int64_t>(1, n_blocks / n_wanted);
  double squares = 0, n = 0;
  Behind behind(file, tensor.view.data);
  for (int64_t i = 0; i < n_blocks; i += stride) {
    behind.reached(i * t.block_bytes);
    for (int64_t j = 0; j < t.block_elements; ++j) {
      const double value = defined_value(t.dtype, tensor.view.data.data() + i * t.block_bytes, j);
      squares += value * value;
      n += 1;
    }
  }
  const double rms = std::sqrt(squares / std::max(1.0, n));
  if (rms > kRmsMax) {
    findings.warn(fmt::format("{} ({}): the root mean square of its values is {:.3g}; weights of models lie below {:g}",
                              tensor.name, t.name, rms, kRmsMax));
  }
  if (is_all_zero(file, tensor.view.data))
    findings.warn(fmt::format("{} ({}): every byte is zero", tensor.name, t.name));
}

void check_byte_order(const gguf::File& file, Findings& findings) {
  std::map<tensor::DType, ByteOrder> orders;
  for (const gguf::Tensor& tensor : file.tensors()) {
    const tensor::DTypeTraits& t = tensor::traits(tensor.view.dtype);
    const FirstFloat where = first_float(t.dtype);
    if (where.n_bytes == 0 || !has_definition(t.dtype)) continue;
    const auto n_blocks = static_cast<int64_t>(tensor.view.data.size()) / t.block_bytes;
    const int64_t stride = std::max<int64_t>(1, n_blocks / kBlocksMax);
    Behind behind(file, tensor.view.data);
    for (int64_t i = 0; i < n_blocks; i += stride) {
      behind.reached(i * t.block_bytes);
      orders[t.dtype].add(tensor.view.data.data() + i * t.block_bytes + where.offset, where.n_bytes,
                          where.exponent_bits);
    }
  }
  for (const auto& [dtype, order] : orders) {
    if (order.is_swapped(first_float(dtype).exponent_bits)) {
      findings.fail(
          fmt::format("{} tensors: their floats make sense with their bytes swapped only: data of "
                      "a big-endian machine behind a "
                      "little-endian header",
                      tensor::traits(dtype).name));
    }
  }
}

}  // namespace

VerifyStage check_file(const Subject& subject, const StageRun& run) {
  return run_stage(run, "file", "File", [&](Findings& findings) {
    const gguf::File& file = subject.model->state().file;
    file.check_sizes();
    check_layout(file, findings);
    check_byte_order(file, findings);
    int64_t n_done = 0;
    for (const gguf::Tensor& tensor : file.tensors()) {
      end_if_cancelled(run);
      if (has_definition(tensor.view.dtype)) {
        check_scales(file, tensor, run.quick, findings);
        check_size(file, tensor, findings);
      }
      show_progress(run, ++n_done, static_cast<int64_t>(file.tensors().size()));
    }
    findings.summary(fmt::format("GGUF version {}, {} in {}: offsets, sizes, byte order, scales and magnitudes",
                                 file.version(), plural(static_cast<int64_t>(file.tensors().size()), "tensor"),
                                 plural(file.n_shards(), "file")));
  });
}

}  // namespace assay::verify
