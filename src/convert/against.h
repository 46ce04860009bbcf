// One tensor of a GGUF file held against what the folder's tensor becomes: equal, near, or wrong, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "convert/draft.h"
#include "gguf/file.h"

namespace assay::converting {

struct Finding {
  int64_t n_rows_wrong = 0, first_row = -1, last_row = -1;
  int64_t column = 0;  // of the first row that is wrong: the first element, or the farthest of a block format
  float found = 0, expected = 0;
  double error = 0;       // ||found - expected|| / ||expected|| over the tensor
  double ratio = 0;       // of a block format: the error over that of its encoder, where there is one
  bool is_exact = false;  // of a float format: every bit is as it should be
  bool passed = false;
};

// Rows of the file's tensor as floats.
void decode_row(const gguf::Tensor& tensor, int64_t row, float* x);

class TensorJudge {
 public:
  TensorJudge(const gguf::Tensor& found, const Output& expected, base::ThreadPool& pool);
  Finding judge();

  // Of the file's tensor: how far rows are from what another tensor would be, relative to that one's size. Rows that
  // are spread over it.
  double distance_from(const Output& other) const;

 private:
  struct RowError {
    double error = 0, size = 0;
    int64_t column = 0;
    float found = 0, expected = 0;
    bool is_wrong = false;
  };
  RowError row_error(int64_t row, std::vector<float>& x, std::vector<float>& y, std::vector<std::byte>& bytes) const;
  void measure_encoder();

  const gguf::Tensor& found_;
  const Output& expected_;
  base::ThreadPool& pool_;
  std::optional<double> best_;  // relative error of the format's encoder, on rows spread over the tensor
};

// Why a tensor is not what it should be: the faults of converters, put into what was expected until the file's rows
// come out. Empty: none does.
std::string cause_of(const TensorJudge& judge, const gguf::Tensor& found, const Output& expected,
                     const Finding& finding, const Draft& draft);

}  // namespace assay::converting
