// Sampling defaults from a file's metadata.
#include "engine/sampling/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>

#include "assay/error.h"

namespace assay::engine {
namespace {

class File {  // metadata in memory
 public:
  File& number(std::string_view key, float value) {
    return add(key, gguf::ValueType::f32, std::string(reinterpret_cast<const char*>(&value), 4));
  }
  File& count(std::string_view key, int32_t value) {
    return add(key, gguf::ValueType::i32, std::string(reinterpret_cast<const char*>(&value), 4));
  }
  File& text(std::string_view key, const std::string& value) { return add(key, gguf::ValueType::string, value); }
  SamplerOptions options() const { return default_sampling(metadata_); }
  std::string error() const {
    try {
      options();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

 private:
  File& add(std::string_view key, gguf::ValueType type, std::string bytes) {
    bytes_.push_back(std::move(bytes));
    const auto view = std::as_bytes(std::span<const char>(bytes_.back()));
    EXPECT_TRUE(metadata_.add(key, type, gguf::ValueType::u8, 0, view));
    return *this;
  }
  std::deque<std::string> bytes_;
  gguf::Metadata metadata_;
};

TEST(SamplingDefaults, WithoutKeysAreLlamaCpps) {
  const SamplerOptions o = File().options();
  EXPECT_EQ(o.temperature, 0.8);
  EXPECT_EQ(o.top_k, 40);
  EXPECT_EQ(o.top_p, 0.95);
  EXPECT_EQ(o.min_p, 0.05);
  EXPECT_EQ(o.repeat_penalty, 1);
}

TEST(SamplingDefaults, TheFileSaysOtherwise) {
  const SamplerOptions o = File()
                               .number("general.sampling.temp", 0.5f)
                               .count("general.sampling.top_k", 20)
                               .number("general.sampling.top_p", 0.75f)
                               .number("general.sampling.penalty_repeat", 1.5f)
                               .count("general.sampling.mirostat", 0)
                               .options();
  EXPECT_EQ(o.temperature, 0.5);
  EXPECT_EQ(o.top_k, 20);
  EXPECT_EQ(o.top_p, 0.75);
  EXPECT_EQ(o.min_p, 0.05);
  EXPECT_EQ(o.repeat_penalty, 1.5);
}

TEST(SamplingDefaults, ASequenceTurnsOffWhatItLeavesOut) {
  const SamplerOptions o = File().text("general.sampling.sequence", "top_k;top_p;temperature").options();
  EXPECT_EQ(o.top_k, 40);
  EXPECT_EQ(o.top_p, 0.95);
  EXPECT_EQ(o.min_p, 0);
  EXPECT_EQ(o.penalty_last_n, 0);
  EXPECT_EQ(o.temperature, 0.8);
}

TEST(SamplingDefaults, RefuseByNameWhatIsNotServed) {
  using testing::HasSubstr;
  EXPECT_THAT(File().count("general.sampling.mirostat", 2).error(), HasSubstr("mirostat"));
  EXPECT_THAT(File().text("general.sampling.sequence", "temperature;top_k").error(), HasSubstr("order"));
  EXPECT_THAT(File().text("general.sampling.sequence", "top_k;magic").error(), HasSubstr("unknown step 'magic'"));
  EXPECT_THAT(File().number("general.sampling.top_p", -3).error(), HasSubstr("top-p is -3"));
}

}  // namespace
}  // namespace assay::engine
