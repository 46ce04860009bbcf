// Files that quantize() writes: what stands in them, independence of threads, and sources that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "assay/error.h"
#include "assay/imatrix.h"
#include "assay/quantize.h"
#include "gguf/writer.h"
#include "quant/encode/encoder.h"
#include "quant/format.h"
#include "support/content.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using tensor::DType;
using testing::HasSubstr;

std::string bytes_of(const std::filesystem::path& path) { return test::content(path); }

class JobTest : public testing::Test {
 protected:
  std::filesystem::path in() const { return folder_ / "in-00001-of-00001.gguf"; }
  std::filesystem::path out() const { return folder_ / "out.gguf"; }
  void write(test::TinyLlama spec = {}) {
    test::TinyLlamaWriter writer(spec);
    writer.file()
        .set("split.no", uint16_t{0})
        .set("split.count", uint16_t{1})
        .set("split.tensors.count", static_cast<int32_t>(3 + 9 * spec.n_layers));
    writer.file()
        .set("general.file_type", uint32_t{0})
        .set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    writer.file().write(in());
  }
  static QuantizeOptions to(const std::string& type) {
    QuantizeOptions options;
    options.type = type;
    options.n_threads = 1;
    return options;
  }
  std::string refusal(const QuantizeOptions& options, Errc code = Errc::bad_request) {
    try {
      quantize(in(), out(), options);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code) << e.what();
      EXPECT_FALSE(std::filesystem::exists(out()));
      EXPECT_FALSE(std::filesystem::exists(out().string() + ".partial"));
      return e.what();
    }
    ADD_FAILURE() << "was not refused";
    return "";
  }
  test::TempFolder folder_;
};

TEST_F(JobTest, WritesTheModelWithOtherWeights) {
  write();
  const QuantizeResult r = quantize(in(), out(), to("Q4_K_M"));
  EXPECT_EQ(r.paths, std::vector{out()});
  const gguf::File from = gguf::File::open(in()), file = gguf::File::open(out());
  EXPECT_EQ(file.metadata().require_unsigned("general.file_type"), 15u);
  EXPECT_EQ(file.metadata().require_unsigned("general.quantization_version"), 2u);
  EXPECT_FALSE(file.metadata().has("split.count"));
  EXPECT_EQ(file.metadata().require_strings("tokenizer.ggml.tokens").size(), 2u);
  ASSERT_EQ(file.tensors().size(), r.plan.tensors.size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const gguf::Tensor& t = file.tensors()[i];
    EXPECT_EQ(t.name, r.plan.tensors[i].name);
    EXPECT_EQ(tensor::traits(t.view.dtype).name, r.plan.tensors[i].type);
    const gguf::Tensor& source = *from.find(t.name);
    EXPECT_EQ(t.view.shape, source.view.shape);
    if (t.view.dtype == source.view.dtype) {
      EXPECT_TRUE(std::equal(t.view.data.begin(), t.view.data.end(), source.view.data.begin())) << t.name;
      continue;
    }
    // Row by row what the encoder gives.
    std::vector<float> x(static_cast<size_t>(t.view.shape.cols()));
    std::vector<std::byte> row(static_cast<size_t>(t.view.row_bytes()));
    for (int64_t j = 0; j < t.view.shape.rows(); ++j) {
      quant::decode_row(*quant::find_format(source.view.dtype), source.view.row(j), t.view.shape.cols(), x.data());
      quant::encode::find_encoder(t.view.dtype)(x.data(), nullptr, t.view.shape.cols(), quant::encode::Effort::normal,
                                                row.data());
      ASSERT_EQ(std::memcmp(row.data(), t.view.row(j), row.size()), 0) << t.name << " row " << j;
    }
  }
}

TEST_F(JobTest, TheBytesDoNotDependOnThreads) {
  write();
  QuantizeOptions options = to("Q3_K_M");
  quantize(in(), out(), options);
  const std::string one = bytes_of(out());
  for (const int n_threads : {2, 5}) {
    options.n_threads = n_threads;
    quantize(in(), folder_ / "other.gguf", options);
    EXPECT_TRUE(bytes_of(folder_ / "other.gguf") == one) << n_threads;
  }
  options.memory_bytes_max = 4096;  // a row at a time
  quantize(in(), folder_ / "other.gguf", options);
  EXPECT_TRUE(bytes_of(folder_ / "other.gguf") == one);
}

TEST_F(JobTest, EveryServedMixCanBeWrittenAndRead) {
  test::TinyLlama spec;
  spec.n_layers = 1;
  spec.d_ff = 256;
  write(spec);
  const gguf::File source = gguf::File::open(in());
  Imatrix matrix{{"text"}, 2, 512, {}};
  for (const gguf::Tensor& t : source.tensors()) {
    if (t.name.starts_with("blk.") && t.view.shape.rank == 2) {
      matrix.entries.push_back(
          {std::string(t.name), std::vector<float>(static_cast<size_t>(t.view.shape.cols()), 2.0f), {1024}});
    }
  }
  std::sort(matrix.entries.begin(), matrix.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  write_imatrix(matrix, (folder_ / "matrix.gguf").string());
  for (const std::string& type : quantize_type_names()) {
    if (type == "COPY") continue;
    QuantizeOptions options = to(type);
    const QuantizePlan plan = plan_quantize(in(), options);
    if (std::any_of(plan.tensors.begin(), plan.tensors.end(),
                    [](const QuantizedTensor& t) { return t.needs_matrix; })) {
      EXPECT_THAT(refusal(options), HasSubstr("--imatrix")) << type;
      options.imatrix = folder_ / "matrix.gguf";
    }
    options.effort = QuantizeEffort::fast;
    quantize(in(), out(), options);
    EXPECT_EQ(gguf::File::open(out()).tensors().size(), source.tensors().size()) << type;
    std::filesystem::remove(out());
  }
}

TEST_F(JobTest, CopyKeepsTensorsAndFileType) {
  test::TinyLlama spec;
  spec.dtype = DType::Q5_K;
  write(spec);
  quantize(in(), out(), to("COPY"));
  const gguf::File from = gguf::File::open(in()), file = gguf::File::open(out());
  EXPECT_EQ(file.metadata().require_unsigned("general.file_type"), 0u);
  for (const gguf::Tensor& t : file.tensors()) {
    const auto& source = from.find(t.name)->view.data;
    EXPECT_TRUE(std::equal(t.view.data.begin(), t.view.data.end(), source.begin(), source.end())) << t.name;
  }
}

TEST_F(JobTest, ASplitSourceBecomesOneFileOrAsMany) {
  write();
  const gguf::File whole = gguf::File::open(in());
  gguf::Writer writer(folder_ / "parts.gguf", gguf::split(gguf::Head(whole), {0, 8}));
  for (size_t i = 0; i < whole.tensors().size(); ++i) writer.write(whole.find(writer.next_tensor().name)->view.data);
  writer.finish();
  ASSERT_EQ(writer.paths().size(), 3u);
  const gguf::File parts = gguf::File::open(writer.paths()[0]);

  QuantizeOptions options = to("Q8_0");
  EXPECT_EQ(quantize(writer.paths()[0], out(), options).paths, std::vector{out()});
  const gguf::File one = gguf::File::open(out());
  EXPECT_EQ(one.n_shards(), 1);
  options.keep_split = true;
  const QuantizeResult r = quantize(writer.paths()[0], out(), options);
  ASSERT_EQ(r.paths.size(), 3u);
  const gguf::File kept = gguf::File::open(r.paths[0]);
  ASSERT_EQ(kept.tensors().size(), 21u);
  for (const gguf::Tensor& t : kept.tensors()) {
    EXPECT_EQ(t.shard, parts.find(t.name)->shard) << t.name;
    const auto data = one.find(t.name)->view.data;
    EXPECT_TRUE(std::equal(t.view.data.begin(), t.view.data.end(), data.begin(), data.end())) << t.name;
  }
}

TEST_F(JobTest, MetadataIsOverridden) {
  write();
  QuantizeOptions options = to("Q8_0");
  options.override_kv = {"llama.context_length=int:77", "general.name=str:a=b:c", "x.y=float:0.5",
                         "tokenizer.ggml.add_bos_token=bool:true"};
  options.prune_layers = {0};
  quantize(in(), out(), options);
  const gguf::File file = gguf::File::open(out());
  EXPECT_EQ(file.metadata().require_unsigned("llama.context_length"), 77u);
  EXPECT_EQ(file.metadata().require_string("general.name"), "a=b:c");
  EXPECT_EQ(file.metadata().require_float("x.y"), 0.5);
  EXPECT_EQ(file.metadata().find_bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(file.metadata().require_unsigned("llama.block_count"), 1u);
  EXPECT_NE(file.find("blk.0.ffn_up.weight"), nullptr);
  EXPECT_EQ(file.find("blk.1.ffn_up.weight"), nullptr);
  std::filesystem::remove(out());
  for (const char* bad : {"x", "=int:1", "x=int:1.5", "x=int:", "x=bool:yes", "x=u8:1", "x=float:abc", "x=int:-1"}) {
    options.override_kv = {bad};
    EXPECT_THAT(refusal(options), HasSubstr("--override-kv")) << bad;
  }
}

TEST_F(JobTest, WeightsThatAreNotFiniteAreNamed) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e6f}) {
    for (const char* name : {"blk.0.ffn_up.weight", "blk.0.ffn_norm.weight"}) {
      std::vector<float> x(512, 1.0f);
      x[300] = value;
      x[400] = value;
      const bool is_vector = std::string(name).find("norm") != std::string::npos;
      if (is_vector && value == 1e6f) continue;  // float32 holds it
      test::GgufWriter file;
      file.set("general.architecture", "llama").set("llama.block_count", uint32_t{1});
      file.tensor(name, is_vector ? std::vector<int64_t>{512} : std::vector<int64_t>{2, 256}, x);
      file.write(in());
      QuantizeOptions options = to("Q4_0");
      options.n_threads = 2;
      const std::string text = refusal(options, Errc::bad_file);
      EXPECT_THAT(text, HasSubstr(std::string("'") + name + "': value 300"));
      EXPECT_THAT(text, HasSubstr(is_vector ? "row 0, column 300" : "row 1, column 44"));
    }
  }
}

TEST_F(JobTest, RefusesToOverwriteItsSource) {
  write();
  EXPECT_THROW(quantize(in(), in(), to("Q4_0")), Error);
  std::filesystem::create_symlink(in(), folder_ / "link.gguf");
  EXPECT_THROW(quantize(in(), folder_ / "link.gguf", to("Q4_0")), Error);
  EXPECT_EQ(gguf::File::open(in()).tensors().size(), 21u);
}

TEST_F(JobTest, CancelledLeavesNothingAndTheOldFile) {
  write();
  std::ofstream(out()) << "old";
  QuantizeOptions options = to("Q4_0");
  int n = 0;
  options.cancelled = [&] { return ++n > 5; };
  EXPECT_TRUE(quantize(in(), out(), options).cancelled);
  EXPECT_EQ(bytes_of(out()), "old");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++files;
  EXPECT_EQ(files, 2);
}

TEST_F(JobTest, MoreEffortSaysWhatItBrought) {
  write();
  QuantizeOptions options = to("Q4_K_S");
  options.effort = QuantizeEffort::best;
  const QuantizeResult r = quantize(in(), out(), options);
  ASSERT_TRUE(r.error_beside_normal);
  EXPECT_LE(*r.error_beside_normal, 1.0);
  EXPECT_GT(*r.error_beside_normal, 0.9);
  EXPECT_FALSE(quantize(in(), out(), to("Q4_K_S")).error_beside_normal);
}

TEST_F(JobTest, ProgressCountsUpToTheEnd) {
  write();
  QuantizeOptions options = to("Q8_0");
  uint64_t last = 0;
  std::string tensor;
  options.progress = [&](const std::string& name, int64_t i, int64_t n, uint64_t done, uint64_t total) {
    EXPECT_LT(i, n);
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    tensor = name;
  };
  quantize(in(), out(), options);
  EXPECT_EQ(tensor, "blk.1.ffn_up.weight");
}

}  // namespace
}  // namespace assay
