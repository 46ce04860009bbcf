// Every golden of tests/data/goldens/arch with one of its keys or tensors spoilt, whatever its family: each is refused
// by the name of the key, or of a tensor that does not fit it, before a plan is made. What one family alone has stands
// in arch_bad_input_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/error.h"
#include "model/build.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"

namespace assay {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

std::vector<std::string> names_of_goldens() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared("goldens/arch"), none)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class ArchBadKeys : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto path = test::shared("goldens/arch/" + GetParam() + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    file_.emplace(gguf::File::open(path));
    prefix_ = std::string(file_->metadata().require_string("general.architecture")) + ".";
  }
  const gguf::Metadata& metadata() const { return file_->metadata(); }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return metadata().has(key(name)); }
  bool is_array(const std::string& full) const { return metadata().find(full)->type == gguf::ValueType::array; }
  uint64_t count(std::string_view name) const {
    const std::string full = key(name);
    return !metadata().has(full) || is_array(full) ? 0 : metadata().require_unsigned(full);
  }

  // Says the key, or some tensor of the file.
  void expect_refused(const test::GgufWriter& spoilt, const std::string& named) const {
    try {
      model::build_model(gguf::File::parse(spoilt.bytes()));
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_TRUE(said.find(named) != std::string::npos || said.find(".weight") != std::string::npos ||
                  said.find(".bias") != std::string::npos)
          << named << ": " << said;
      return;
    }
    ADD_FAILURE() << named << " is served";
  }
  template <class T>
  void spoil(std::string_view name, const T& value) const {
    if (!has(name)) return;
    const std::string full = key(name);
    test::GgufWriter edited = test::edited_copy(*file_, {full});
    edited.set(full, value);
    SCOPED_TRACE(testing::PrintToString(value));
    expect_refused(edited, full);
  }
  // Where the key has one value for all layers.
  void spoil_count(std::string_view name, uint64_t value) const {
    if (has(name) && !is_array(key(name))) spoil(name, static_cast<uint32_t>(value));
  }

  void spoil_tensor(const gguf::Tensor& tensor, const std::vector<int64_t>& shape, size_t n_bytes) const {
    const std::string name(tensor.name);
    test::GgufWriter edited = test::edited_copy(*file_, {name});
    edited.tensor(name, tensor.view.dtype, shape, tensor.view.data.subspan(0, n_bytes));
    SCOPED_TRACE(testing::PrintToString(shape));
    expect_refused(edited, name);
  }
  std::optional<gguf::File> file_;

 private:
  std::string prefix_;
};

TEST_P(ArchBadKeys, CountsOfExperts) {
  const uint64_t n = count("expert_count");
  if (n == 0) return;
  for (const uint64_t bad : {uint64_t{4097}, n + 1}) spoil_count("expert_count", bad);
  for (const uint64_t bad : {uint64_t{0}, n + 1}) spoil_count("expert_used_count", bad);
  spoil_count("expert_group_count", n + 1);
  if (count("expert_group_count") > 1) {
    spoil_count("expert_group_count", n - 1);
    spoil_count("expert_group_used_count", count("expert_group_count") + 1);
  }
  spoil_count("expert_feed_forward_length", count("expert_feed_forward_length") + 1);
  spoil_count("expert_gating_func", 5);
  for (const float bad : {-1.0f, kNotANumber}) spoil("expert_weights_scale", bad);
}

TEST_P(ArchBadKeys, WidthsOfHeads) {
  const bool is_latent = has("attention.key_length_mla");  // of whose cache the other lengths speak
  if (is_latent) {
    spoil_count("attention.key_length_mla", count("attention.key_length_mla") + 2);
    spoil_count("attention.value_length_mla", count("attention.value_length_mla") + 1);
    spoil_count("attention.kv_lora_rank", count("attention.kv_lora_rank") + 1);
  } else if (count("attention.head_count") > 0) {
    spoil_count("attention.key_length", count("attention.key_length") + 2);
    spoil_count("attention.value_length", count("attention.value_length") + 1);
    spoil_count("attention.head_count_kv", count("attention.head_count") + 1);
  }
  spoil_count("attention.head_count", 65537);
}

TEST_P(ArchBadKeys, CapsScalesAndWindows) {
  for (const float bad : {0.0f, -1.0f, kNotANumber}) {
    spoil("attn_logit_softcapping", bad);
    for (const char* name : {"embedding_scale", "residual_scale", "logit_scale", "rope.freq_base", "rope.freq_base_swa",
                             "rope.scaling.factor", "rope.scaling.yarn_beta_fast", "rope.scaling.attn_factor"})
      spoil(name, bad);
  }
  for (const float bad : {-1.0f, kNotANumber}) {
    for (const char* name : {"final_logit_softcapping", "attention.scale", "attention.clamp_kqv",
                             "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"})
      spoil(name, bad);
  }
  for (const char* name : {"attention.value_scale", "attention.temperature_scale", "rope.scaling.yarn_log_multiplier"})
    spoil(name, kNotANumber);
  if (count("attention.sliding_window") > 0) spoil_count("attention.sliding_window", 0);
}

TEST_P(ArchBadKeys, SizesOfStates) {
  for (const char* name :
       {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count", "kda.head_dim",
        "shortconv.l_cache", "hyper_connection.count", "hyper_connection.low_rank"}) {
    if (count(name) == 0) continue;
    for (const uint64_t bad : {uint64_t{0}, count(name) + 1, uint64_t{1} << 31}) spoil_count(name, bad);
  }
  for (const float bad : {0.5f, kNotANumber}) spoil("kda.gate_lower_bound", bad);
}

// What a choice of blocks or keys needs, of which nothing is used where contexts end before there is one.
bool has_no_effect(std::string_view name) {
  return name.find(".indexer.q_") != name.npos || name.find(".indexer.k_") != name.npos ||
         name.ends_with("attention.compress_ratios");
}

// Files have them in several shapes: their elements count.
bool is_read_by_elements(std::string_view name) {
  constexpr std::string_view kEndings[] = {".ssm_a",
                                           ".ssm_d",
                                           ".ssm_norm.weight",
                                           ".hc_attn_norm.weight",
                                           ".hc_ffn_norm.weight",
                                           ".altup_correct_scale.weight"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

TEST_P(ArchBadKeys, ArraysOfTheWrongLength) {
  for (const gguf::Entry& entry : metadata().entries()) {
    const std::string full(entry.key);
    if (entry.type != gguf::ValueType::array || !full.starts_with(key("")) ||
        full.ends_with("rope.dimension_sections") || has_no_effect(full))
      continue;
    const size_t element = entry.bytes.size() / entry.count;
    test::Bytes shorter;
    test::append(shorter, static_cast<uint32_t>(entry.element_type));
    test::append(shorter, entry.count - 1);
    test::append(shorter, entry.bytes.data(), entry.bytes.size() - element);
    test::GgufWriter edited = test::edited_copy(*file_, {full});
    edited.raw_entry(full, static_cast<uint32_t>(entry.type), shorter);
    expect_refused(edited, full);
  }
}

// Of the first and the last layer: another rank with the same elements, and a row too few (what fused tensors split
// wrong).
TEST_P(ArchBadKeys, ShapesOfTensors) {
  const std::string last = "blk." + std::to_string(count("block_count") - 1) + ".";
  for (const gguf::Tensor& tensor : file_->tensors()) {
    const std::string name(tensor.name);
    if (!name.starts_with("blk.0.") && !name.starts_with(last)) continue;
    if (has_no_effect(name) && GetParam() == "qwen4exp") continue;
    const auto& shape = tensor.view.shape;
    const size_t n_bytes = tensor.view.data.size();
    const int64_t n = shape.elements();
    const bool any_shape = is_read_by_elements(name);
    if (shape.rank == 1 && n % 2 == 0 && !any_shape) spoil_tensor(tensor, {2, n / 2}, n_bytes);
    if (shape.rank == 2 && shape.dims[0] > 1) {
      if (!any_shape) spoil_tensor(tensor, {n}, n_bytes);
      spoil_tensor(tensor, {shape.dims[0] - 1, shape.dims[1]},
                   n_bytes / static_cast<size_t>(shape.dims[0]) * static_cast<size_t>(shape.dims[0] - 1));
    }
    if (shape.rank == 3) {
      spoil_tensor(tensor, {shape.dims[0] * shape.dims[1], shape.dims[2]}, n_bytes);
      const int64_t rows = shape.dims[0] * (shape.dims[1] - 1);
      if (rows > 0)
        spoil_tensor(tensor, {shape.dims[0], shape.dims[1] - 1, shape.dims[2]},
                     static_cast<size_t>(rows * tensor.view.row_bytes()));
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ArchBadKeys);
INSTANTIATE_TEST_SUITE_P(Families, ArchBadKeys, ::testing::ValuesIn(names_of_goldens()), [](const auto& of) {
  std::string name = of.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace assay
