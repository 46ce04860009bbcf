// See run_fast.h.
#include "backend/cuda/runtime/run_fast.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cuda/tiles/fast_blocks.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kUnitRows = 1024;  // of decoded rows: tiles that all of a cluster's blocks share

class FastProducts {
 public:
  FastProducts(const DeviceState& state, const FastRun& run, const Queue& queue)
      : s_(state), run_(run), queue_(queue) {}

  void in_tiles(std::span<const FastLinear> linears) {
    if (!run_.halves_are_made) round_to(run_.type, run_.x, run_.n_tokens * run_.cols, s_.floats.view().x, queue_);
    for (const FastLinear& linear : linears) add(linear);
    multiply_rows();
  }

  // Matrices of one format at a time.
  void in_skinny(std::span<const FastLinear> linears) {
    for (const FastLinear& first : linears) {
      const auto is_alike = [&](const FastLinear& other) { return other.task.w->dtype == first.task.w->dtype; };
      if (std::any_of(linears.data(), &first, is_alike)) continue;
      tile_tokens_ = first.row->form.tokens;
      if (first.row->kernel == FloatKernel::fast_skinny_of_blocks) {
        std::array<LinearTask, kLinearsMax> alike;
        size_t n = 0;
        for (const FastLinear& linear : linears) {
          if (is_alike(linear)) alike[n++] = linear.task;
        }
        fast_skinny_blocks(std::span(alike.data(), n), tile_tokens_, run_.x, run_.n_tokens, queue_);
        continue;
      }
      for (const FastLinear& linear : linears) {
        if (is_alike(linear)) add(linear);
      }
      multiply_rows();
    }
  }

 private:
  size_t row_bytes() const { return static_cast<size_t>(run_.cols) * sizeof(uint16_t); }

  // To the rows that are multiplied next. Those of quantised weights are decoded as far as there is room; then what is
  // there is multiplied first.
  void add(const FastLinear& fast) {
    const LinearTask& linear = fast.task;
    const Matrix& w = *linear.w;
    if (!fast_decodes(w.dtype)) return add_rows({run_.type, w.parts.base[0], w.rows, linear.bias, linear.y, w.rows});
    for (int64_t row = 0; row < w.rows;) {
      const int64_t left = w.rows - row;
      int64_t n = std::min(left, static_cast<int64_t>((s_.halves.size() - n_bytes_) / row_bytes()));
      if (n < left && n > kUnitRows) n -= n % kUnitRows;
      if (n < std::min(left, kUnitRows) && n_bytes_ > 0) {
        multiply_rows();
        continue;
      }
      std::byte* const to = s_.halves.data() + n_bytes_;
      blocks_to_halves(fast.unpacker, w, row, n, to, queue_);
      n_bytes_ += static_cast<size_t>(n) * row_bytes();
      add_rows({run_.type, to, n, linear.bias == nullptr ? nullptr : linear.bias + row, linear.y + row, w.rows});
      row += n;
    }
  }
  void add_rows(const FloatRows& rows) {
    rows_[n_rows_++] = rows;
    if (n_rows_ == rows_.size()) multiply_rows();
  }

  void multiply_rows() {
    const std::span<const FloatRows> rows(rows_.data(), n_rows_);
    n_rows_ = 0;
    const bool is_decoded = std::exchange(n_bytes_, 0) > 0;
    if (rows.empty()) return;
    if (run_.in_tiles) return fast_tiles(rows, run_.cols, s_.floats.view().x, run_.n_tokens, s_.hopper.view(), queue_);
    Queue queue = queue_;
    queue.overlap = queue.overlap && !is_decoded;  // it fetches weights before it waits for the kernel ahead
    fast_skinny(rows, tile_tokens_, run_.cols, run_.x, run_.n_tokens, queue);
  }

  const DeviceState& s_;
  const FastRun& run_;
  const Queue& queue_;
  std::array<FloatRows, kFastRowsMax> rows_;
  size_t n_rows_ = 0, n_bytes_ = 0;  // of halves among them
  int tile_tokens_ = 0;              // of skinny
};

}  // namespace

void run_fast_linears(const DeviceState& state, const FastRun& run, std::span<const FastLinear> linears,
                      const Queue& queue) {
  FastProducts products(state, run, queue);
  run.in_tiles ? products.in_tiles(linears) : products.in_skinny(linears);
}

}  // namespace assay::backend::cuda
