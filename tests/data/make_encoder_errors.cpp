// Writes encoder_errors.json: the squared errors that ggml's encoders (llama.cpp 0.5.0) leave on rows of the tests,
// without and with an importance matrix. Not part of the build: link with libggml-base, -I tests -I src.
#include <cstdio>
#include <vector>

#include "support/encoder_rows.h"

extern "C" {
size_t ggml_quantize_chunk(int type, const float* src, void* dst, int64_t start, int64_t n_rows, int64_t n_per_row,
                           const float* importance);
void ggml_quantize_init(int type);
const char* ggml_type_name(int type);
struct ggml_type_traits {
  const char* name;
  int64_t block, block_interleaved;
  size_t size;
  bool quantized;
  void (*to_float)(const void* x, float* y, int64_t n);
};
const ggml_type_traits* ggml_get_type_traits(int type);
}

int main() {
  const struct {
    int type;
    const char* name;
  } types[] = {{2, "Q4_0"},     {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},     {10, "Q2_K"},
               {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
               {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
               {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"}};
  const char* before = "{";
  for (const auto& t : types) {
    double errors[2] = {0, 0};
    ggml_quantize_init(t.type);
    for (int weighted = 0; weighted < 2; ++weighted) {
      for (uint64_t seed = 30; seed < 38; ++seed) {
        const std::vector<float> x = assay::test::normal_row(seed), w = assay::test::weights_row(seed);
        std::vector<char> bytes(4 * x.size());
        std::vector<float> y(x.size());
        const std::vector<float> ones(x.size(), 1.0f);
        const float* none =
            t.type == 16 || t.type == 17 || t.type == 19 ? ones.data() : nullptr;  // those refuse to go without
        const int64_t n = static_cast<int64_t>(x.size());
        ggml_quantize_chunk(t.type, x.data(), bytes.data(), 0, 1, n, weighted ? w.data() : none);
        ggml_get_type_traits(t.type)->to_float(bytes.data(), y.data(), n);
        for (size_t j = 0; j < x.size(); ++j) {
          const double e = static_cast<double>(x[j]) - y[j];
          errors[weighted] += (weighted ? w[j] : 1.0) * e * e;
        }
      }
    }
    std::printf("%s\n\"%s\": {\"plain\": %.9e, \"weighted\": %.9e}", before, t.name, errors[0], errors[1]);
    before = ",";
  }
  std::printf("\n}\n");
}
