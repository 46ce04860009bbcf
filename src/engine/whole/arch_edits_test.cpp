// Files that say the same as a golden of tests/data/goldens/arch in another way must give its numbers; and files that
// say what cannot be are refused by the key's or tensor's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "model/build.h"
#include "num/f16.h"
#include "support/gguf_edit.h"
#include "support/golden_run.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using test::Bytes;
using test::GgufWriter;

class ArchEdits : public ::testing::Test {
 protected:
  static std::filesystem::path golden(const std::string& name) {
    return test::shared("goldens/arch/" + name + ".gguf");
  }

  // The golden without these keys and tensors, and with what `add` writes; `source` is the file as it was.
  std::string write(const std::string& name, const std::set<std::string>& without,
                    const std::function<void(GgufWriter&, const gguf::File& source)>& add) const {
    const gguf::File source = gguf::File::open(golden(name));
    GgufWriter edited = test::edited_copy(source, without);
    if (add) add(edited, source);
    const std::string path = (folder_.path() / "edited.gguf").string();
    edited.write(path);
    return path;
  }
  void expect_golden(const std::string& name, const std::set<std::string>& without,
                     const std::function<void(GgufWriter&, const gguf::File& source)>& add) const {
    const auto model = Model::load(write(name, without, add), {.tokenizer = false});
    for (const auto& [numerics, tolerance] : {std::pair(Numerics::f32, 2e-4), std::pair(Numerics::oracle, 1e-6)}) {
      ContextOptions options;
      options.numerics = numerics;
      options.cache_k = options.cache_v = KvType::f32;
      options.n_ctx = 64, options.n_ubatch = 7, options.n_threads = 1;
      Context context(model, options);
      EXPECT_LT(test::worst_of(context, test::read_tiny_golden(test::shared("goldens/arch/" + name + ".json"))),
                tolerance)
          << assay::name(numerics);
    }
  }
  std::string failure(const std::string& name, const std::set<std::string>& without,
                      const std::function<void(GgufWriter&, const gguf::File& source)>& add) const {
    try {
      Model::load(write(name, without, add), {.tokenizer = false});
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  }
  static std::string digest(const std::string& path) {
    const auto model = Model::load(path, {.tokenizer = false});
    Context context(model, {.n_ctx = 64, .n_threads = 1});
    context.decode_all(std::vector<int32_t>{5, 9, 2, 7, 11, 3, 8, 20, 6, 13, 4, 17}, {});
    return context.kv_digest();
  }

 private:
  test::TempFolder folder_;
};

// Rows [begin, begin + n) of every one of n_runs runs of a tensor's rows, row_bytes each.
Bytes rows_of(const gguf::Tensor& tensor, int64_t n_runs, int64_t begin, int64_t n) {
  const int64_t row_bytes = tensor.view.row_bytes(), rows = tensor.view.shape.rows() / n_runs;
  Bytes found;
  for (int64_t i = 0; i < n_runs; ++i)
    test::append(found, tensor.view.row(i * rows + begin), static_cast<size_t>(n * row_bytes));
  return found;
}

std::string in_layer(int layer, const std::string& name) {
  return "blk." + std::to_string(layer) + "." + name + ".weight";
}

// Older files of latent attention: attn_kv_b holds each head's keys, then its values; attention runs expanded.
TEST_F(ArchEdits, LatentAttentionExpandedIsTheSameAsAbsorbed) {
  constexpr int64_t kHeads = 4, kRank = 32, kNope = 16, kValue = 16;
  const std::set<std::string> without = {in_layer(0, "attn_k_b"),
                                         in_layer(0, "attn_v_b"),
                                         in_layer(1, "attn_k_b"),
                                         in_layer(1, "attn_v_b"),
                                         "deepseek2.attention.key_length_mla",
                                         "deepseek2.attention.value_length_mla",
                                         "deepseek2.attention.key_length",
                                         "deepseek2.attention.value_length",
                                         "deepseek2.attention.head_count_kv"};
  for (const char* name : {"deepseek2", "deepseek3-yarn"}) {
    expect_golden(name, without, [](GgufWriter& file, const gguf::File& source) {
      file.set("deepseek2.attention.key_length", uint32_t{24}).set("deepseek2.attention.value_length", uint32_t{16});
      file.set("deepseek2.attention.head_count_kv", uint32_t{4});
      for (int layer = 0; layer < 2; ++layer) {
        const tensor::TensorView &k = source.find(in_layer(layer, "attn_k_b"))->view,
                                 &v = source.find(in_layer(layer, "attn_v_b"))->view;
        const auto element = [](const tensor::TensorView& of, int64_t row, int64_t column) {
          return of.row(row) + 2 * column;
        };  // F16
        Bytes both;
        for (int64_t head = 0; head < kHeads; ++head) {
          for (int64_t i = 0; i < kNope; ++i) {
            for (int64_t c = 0; c < kRank; ++c) test::append(both, element(k, head * kRank + c, i), 2);
          }
          for (int64_t i = 0; i < kValue; ++i) test::append(both, v.row(head * kValue + i), 2 * kRank);
        }
        file.tensor(in_layer(layer, "attn_kv_b"), tensor::DType::F16, {kHeads * (kNope + kValue), kRank}, both);
      }
    });
  }
}

// A magnitude of the rotation that the file states multiplies what turns, of queries and of keys, and takes the place
// of the one that YaRN would give.
TEST_F(ArchEdits, LatentAttentionTakesTheMagnitudeThatIsStated) {
  constexpr int64_t kHeads = 4, kRank = 32, kNope = 16, kTurned = 8;
  const std::set<std::string> without = {in_layer(0, "attn_q_b"), in_layer(0, "attn_kv_a_mqa"), in_layer(1, "attn_q_b"),
                                         in_layer(1, "attn_kv_a_mqa")};
  expect_golden("deepseek3-yarn", without, [](GgufWriter& file, const gguf::File& source) {
    const auto with_turned_twice = [&](const std::string& name, int64_t n_runs, int64_t first) {
      const gguf::Tensor& of = *source.find(name);
      const int64_t rows = of.view.shape.rows() / n_runs;
      Bytes data(of.view.data.begin(), of.view.data.end());
      ASSERT_EQ(rows, first + kTurned) << name;
      for (int64_t i = 0; i < n_runs * rows; ++i) {
        for (int64_t j = 0; i % rows >= first && j < of.view.shape.cols(); ++j) {
          uint16_t half;
          std::byte* const at = data.data() + i * of.view.row_bytes() + 2 * j;
          std::memcpy(&half, at, 2);
          half = num::float_to_half(2 * num::half_to_float(half));
          std::memcpy(at, &half, 2);
        }
      }
      file.tensor(name, of.view.dtype, {of.view.shape.rows(), of.view.shape.cols()}, data);
    };
    file.set("deepseek2.rope.scaling.yarn_attn_factor", 0.5f);
    for (int layer = 0; layer < 2; ++layer) {
      with_turned_twice(in_layer(layer, "attn_q_b"), kHeads, kNope);
      with_turned_twice(in_layer(layer, "attn_kv_a_mqa"), 1, kRank);
    }
  });
}

TEST_F(ArchEdits, ExpertsMayBeFusedOrNot) {
  const auto split = [](int n_layers) {
    return [n_layers](GgufWriter& file, const gguf::File& source) {
      for (int layer = 0; layer < n_layers; ++layer) {
        const gguf::Tensor& both = *source.find(in_layer(layer, "ffn_gate_up_exps"));
        file.tensor(in_layer(layer, "ffn_gate_exps"), both.view.dtype, {8, 16, 64}, rows_of(both, 8, 0, 16));
        file.tensor(in_layer(layer, "ffn_up_exps"), both.view.dtype, {8, 16, 64}, rows_of(both, 8, 16, 16));
      }
    };
  };
  const std::set<std::string> fused = {in_layer(0, "ffn_gate_up_exps"), in_layer(1, "ffn_gate_up_exps")};
  expect_golden("gemma4-moe", fused, split(2));
  expect_golden("mistral4", fused, split(2));
}

TEST_F(ArchEdits, QueriesKeysAndValuesMayBeFusedWithTheirBiasesOrWithout) {
  for (const bool with_biases : {true, false}) {
    std::set<std::string> without;
    for (int layer = 0; layer < 2; ++layer) {
      for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
        without.insert(in_layer(layer, part));
        if (with_biases) without.insert("blk." + std::to_string(layer) + "." + part + ".bias");
      }
    }
    expect_golden("qwen2", without, [&](GgufWriter& file, const gguf::File& source) {
      for (int layer = 0; layer < 2; ++layer) {
        const std::string blk = "blk." + std::to_string(layer) + ".";
        Bytes rows, biases;
        int64_t n = 0;
        for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
          const tensor::TensorView &w = source.find(in_layer(layer, part))->view,
                                   &b = source.find(blk + part + ".bias")->view;
          test::append(rows, w.data.data(), w.data.size()), test::append(biases, b.data.data(), b.data.size());
          n += w.shape.rows();
        }
        const tensor::TensorView& q = source.find(in_layer(layer, "attn_q"))->view;
        file.tensor(in_layer(layer, "attn_qkv"), q.dtype, {n, q.shape.cols()}, rows);
        if (with_biases) file.tensor(blk + "attn_qkv.bias", tensor::DType::F32, {n}, biases);
      }
    });
  }
}

TEST_F(ArchEdits, Gemma4KeysAsValuesAreKeysTwice) {
  expect_golden("gemma4", {}, [](GgufWriter& file, const gguf::File& source) {
    const gguf::Tensor& k = *source.find(in_layer(1, "attn_k"));
    file.tensor(in_layer(1, "attn_v"), k.view.dtype, {32, 64}, rows_of(k, 1, 0, 32));
  });
}

// Layers that read another one's cache may have tensors for keys of their own in the file: nobody reads them.
TEST_F(ArchEdits, Gemma4SharedLayersIgnoreTheirOwnKeys) {
  expect_golden("gemma4-e", {}, [](GgufWriter& file, const gguf::File& source) {
    for (const char* name : {"attn_k", "attn_v", "attn_k_norm"}) {
      const gguf::Tensor& of = *source.find(in_layer(0, name));
      const tensor::Shape& shape = of.view.shape;
      file.tensor(in_layer(2, name), of.view.dtype, {shape.dims.begin(), shape.dims.begin() + shape.rank},
                  of.view.data);
    }
  });
}

TEST_F(ArchEdits, Gemma4WhatCannotBeIsNamed) {
  using ::testing::HasSubstr;
  const auto with = [](const char* key, uint32_t value) {
    return [=](GgufWriter& file, const gguf::File&) { file.set(key, value); };
  };
  EXPECT_THAT(failure("gemma4-e", {"gemma4.attention.shared_kv_layers"}, with("gemma4.attention.shared_kv_layers", 4)),
              HasSubstr("0 to 3, found 4"));
  EXPECT_THAT(failure("gemma4-e", {"gemma4.attention.shared_kv_layers"}, with("gemma4.attention.shared_kv_layers", 3)),
              HasSubstr("gemma4.attention.shared_kv_layers: layer 1 finds no earlier layer of its kind"));
  EXPECT_THAT(failure("gemma4", {"gemma4.rope.dimension_count_swa"}, with("gemma4.rope.dimension_count_swa", 15)),
              HasSubstr("gemma4.rope.dimension_count_swa"));
  EXPECT_THAT(failure("gemma4", {"gemma4.attention.value_length"}, with("gemma4.attention.value_length", 16)),
              HasSubstr("blk.1.attn_v.weight"));
  EXPECT_THAT(failure("gemma4-e", {"gemma4.embedding_length_per_layer_input"},
                      with("gemma4.embedding_length_per_layer_input", 8)),
              HasSubstr("per_layer_token_embd.weight"));
  EXPECT_THAT(failure("gemma4-moe", {"blk.0.ffn_gate_inp.scale"}, {}), HasSubstr("blk.0.ffn_gate_inp.scale"));
}

TEST_F(ArchEdits, LatentWhatCannotBeIsNamed) {
  using ::testing::HasSubstr;
  const auto with = [](const char* key, uint32_t value) {
    return [=](GgufWriter& file, const gguf::File&) { file.set(key, value); };
  };
  const std::set<std::string> rank = {"deepseek2.attention.kv_lora_rank"}, key = {"deepseek2.attention.key_length_mla"};
  EXPECT_THAT(failure("deepseek2", rank, {}), HasSubstr("deepseek2.attention.kv_lora_rank"));
  EXPECT_THAT(failure("deepseek2", rank, with("deepseek2.attention.kv_lora_rank", 31)),
              HasSubstr("blk.0.attn_kv_a_mqa.weight: needs 39 x 64"));
  EXPECT_THAT(failure("deepseek2", key, with("deepseek2.attention.key_length_mla", 8)),
              HasSubstr("deepseek2.rope.dimension_count"));
  EXPECT_THAT(failure("deepseek2", {"deepseek2.attention.value_length_mla"}, {}),
              HasSubstr("deepseek2.attention.value_length_mla"));
  EXPECT_THAT(failure("deepseek2", {in_layer(0, "attn_v_b")}, {}), HasSubstr("blk.0.attn_v_b.weight"));
}

// Nemotron-H rotates nothing. Its converter writes the model's width over the number of heads all the same, which may
// be more than a head has.
TEST_F(ArchEdits, WhatIsNotRotatedMayBeWiderThanAHead) {
  for (const auto& [name, architecture] :
       {std::pair("nemotronh", "nemotron_h"), std::pair("nemotronhmoe", "nemotron_h_moe")}) {
    const std::string key = std::string(architecture) + ".rope.dimension_count";
    for (const uint32_t width : {17u, 256u}) {
      expect_golden(name, {key}, [&](GgufWriter& file, const gguf::File&) { file.set(key, width); });
    }
  }
}

// Which layers have a window may be said of all layers but those that only predict further tokens.
TEST_F(ArchEdits, LayersThatPredictNeedNoFlags) {
  expect_golden("exaonemoe", {"exaone-moe.block_count", "exaone-moe.nextn_predict_layers"},
                [](GgufWriter& file, const gguf::File&) {
                  file.set("exaone-moe.block_count", uint32_t{3}).set("exaone-moe.nextn_predict_layers", uint32_t{1});
                });
}

// Granite 4.0 without layers of Mamba: the converter writes their sizes all the same.
TEST_F(ArchEdits, SizesOfStatesWithoutLayersOfThemSayNothing) {
  for (const auto& [name, architecture] :
       {std::pair("granite", "granite"), std::pair("granitemoe-shared", "granitemoe")}) {
    const std::string ssm = std::string(architecture) + ".ssm.";
    expect_golden(name, {}, [&](GgufWriter& file, const gguf::File&) {
      file.set(ssm + "state_size", uint32_t{16})
          .set(ssm + "inner_size", uint32_t{128})
          .set(ssm + "group_count", uint32_t{1});
      file.set(ssm + "conv_kernel", uint32_t{4}).set(ssm + "time_step_rank", uint32_t{8});
    });
  }
}

// Of files older than expert_feed_forward_length: the layer's width is that of the experts that are used together.
TEST_F(ArchEdits, ExpertsMayShareTheWidthOfTheirLayer) {
  for (const auto& [name, n_used] : {std::pair("qwen2moe", 3u), std::pair("qwen3moe", 3u)}) {
    const std::string own = std::string(name) + ".expert_feed_forward_length",
                      whole = std::string(name) + ".feed_forward_length";
    const gguf::File source = gguf::File::open(golden(name));
    ASSERT_EQ(source.metadata().require_unsigned(std::string(name) + ".expert_used_count"), n_used);
    const auto of_layer = static_cast<uint32_t>(source.metadata().require_unsigned(own)) * n_used;
    expect_golden(name, {own, whole}, [&](GgufWriter& file, const gguf::File&) { file.set(whole, of_layer); });
  }
}

// Older files of Qwen3-Next: one tensor has for each key head its query, key, values and gates.
TEST_F(ArchEdits, Qwen3NextFusedByKeyHeads) {
  constexpr int64_t kKeyHeads = 2, kWidth = 16, kOfValues = 32, kKeys = kKeyHeads * kWidth;
  const gguf::File whole = gguf::File::open(golden("qwen3next"));
  std::set<std::string> without;
  std::vector<int> layers;
  for (int layer = 0; layer < static_cast<int>(whole.metadata().require_unsigned("qwen3next.block_count")); ++layer) {
    if (whole.find(in_layer(layer, "attn_gate")) == nullptr) continue;
    layers.push_back(layer);
    without.insert({in_layer(layer, "attn_qkv"), in_layer(layer, "attn_gate")});
  }
  ASSERT_FALSE(layers.empty());
  expect_golden("qwen3next", without, [&](GgufWriter& file, const gguf::File& source) {
    for (const int layer : layers) {
      const gguf::Tensor &qkv = *source.find(in_layer(layer, "attn_qkv")),
                         &z = *source.find(in_layer(layer, "attn_gate"));
      Bytes all;
      for (int64_t head = 0; head < kKeyHeads; ++head) {
        for (const Bytes& part :
             {rows_of(qkv, 1, head * kWidth, kWidth), rows_of(qkv, 1, kKeys + head * kWidth, kWidth),
              rows_of(qkv, 1, 2 * kKeys + head * kOfValues, kOfValues), rows_of(z, 1, head * kOfValues, kOfValues)})
          test::append(all, part.data(), part.size());
      }
      file.tensor(in_layer(layer, "ssm_in"), qkv.view.dtype, {2 * (kKeys + kKeyHeads * kOfValues), 64}, all);
    }
  });
}

// Where only layers with a window rotate, rope.freq_base_swa is the whole rotation.
TEST_F(ArchEdits, WindowsMayHaveABaseOfTheirOwn) {
  for (const auto& [name, architecture] : {std::pair("cohere2", "cohere2"), std::pair("afmoe", "afmoe"),
                                           std::pair("exaonemoe", "exaone-moe"), std::pair("exaone4-32b", "exaone4")}) {
    const std::string base = std::string(architecture) + ".rope.freq_base";
    expect_golden(name, {base},
                  [&](GgufWriter& file, const gguf::File&) { file.set(base, 77.0f).set(base + "_swa", 10000.0f); });
  }
}

// The same where all layers rotate: with windows in all of them the base of the full ones has no effect.
TEST_F(ArchEdits, WindowsOfAllLayersUseTheirOwnBase) {
  for (const auto& [name, architecture] : {std::pair("gemma2", "gemma2"), std::pair("gptoss", "gpt-oss")}) {
    const std::string of = name, base = std::string(architecture) + ".rope.freq_base",
                      pattern = std::string(architecture) + ".attention.sliding_window_pattern";
    const auto all_windows = [&](float full, float own) {
      const std::string path = write(of, {base, pattern}, [&](GgufWriter& file, const gguf::File&) {
        file.set(pattern, std::vector<uint32_t>{1, 1}).set(base, full).set(base + "_swa", own);
      });
      return digest(path);
    };
    EXPECT_EQ(all_windows(10000.0f, 500.0f), all_windows(500.0f, 500.0f)) << name;
    EXPECT_NE(all_windows(500.0f, 10000.0f), all_windows(500.0f, 500.0f)) << name;
  }
}

// Files of GLM-4 models that see pictures: rows of q and k are in halves, and the key of sections says so.
TEST_F(ArchEdits, Glm4WithSectionsTurnsHalves) {
  constexpr int64_t kWidth = 16, kTurned = 8;
  std::set<std::string> without;
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* name : {"attn_q", "attn_k"}) {
      const std::string tensor = in_layer(layer, name);
      without.insert({tensor, tensor.substr(0, tensor.size() - 6) + "bias"});
    }
  }
  expect_golden("glm4", without, [&](GgufWriter& file, const gguf::File& source) {
    file.set("glm4.rope.dimension_sections", std::vector<uint32_t>{2, 1, 1, 0});
    for (const std::string& name : without) {
      const gguf::Tensor& paired = *source.find(name);
      const tensor::Shape& shape = paired.view.shape;
      const bool is_bias = shape.rank == 1;
      const auto row_bytes = static_cast<size_t>(is_bias ? 4 : paired.view.row_bytes());
      Bytes halves;
      for (int64_t row = 0; row < shape.dims[0]; ++row) {
        const int64_t i = row % kWidth, from = i >= kTurned ? i : i < kTurned / 2 ? 2 * i : 2 * (i - kTurned / 2) + 1;
        test::append(halves, paired.view.data.data() + static_cast<size_t>(row - i + from) * row_bytes, row_bytes);
      }
      file.tensor(name, paired.view.dtype, {shape.dims.begin(), shape.dims.begin() + shape.rank}, halves);
    }
  });
}

TEST_F(ArchEdits, BoundedDecaysAreWhatAFileWithoutTheKeyMeans) {
  expect_golden("bailing3", {"bailingmoe3.kda.safe_gate"}, {});
}

TEST_F(ArchEdits, Gemma2OlderThanTheKeyHasWindowsOf4096) {
  const gguf::File file = gguf::File::open(write("gemma2", {"gemma2.attention.sliding_window"}, {}));
  const ops::Plan plan = model::build_model(file).plan;
  EXPECT_EQ(plan.cache_layers[0].window, 4096);
  EXPECT_EQ(plan.cache_layers[1].window, 0);
}

TEST_F(ArchEdits, Lfm2MayHaveAWindow) {
  const auto with = [](uint32_t window) {
    return [=](GgufWriter& file, const gguf::File&) { file.set("lfm2.attention.sliding_window", window); };
  };
  expect_golden("lfm2", {}, with(40));
  const gguf::File file = gguf::File::open(write("lfm2", {}, with(3)));
  EXPECT_EQ(model::build_model(file).plan.cache_layers[0].window, 3);
}

}  // namespace
}  // namespace assay
