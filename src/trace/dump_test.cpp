// Dumps: what is written is read, and the bytes are those of docs/dump-format.md. dump_bad_test.cpp has the broken
// ones.
#include "trace/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "assay/error.h"
#include "support/content.h"
#include "support/dump_bytes.h"
#include "support/temp_folder.h"

namespace assay::trace {
namespace {

using test::content;

using Kind = DumpReader::Kind;

DumpHeader some_header() {
  DumpHeader header;
  header.engine = "engine 1";
  header.model = "M";
  header.architecture = "llama";
  header.text = "a \"text\"\n\xC3\xA9";
  header.n_layers = 2;
  header.d_model = 3;
  header.vocab_size = 10;
  Declared& declared = header.declared;
  declared.unit_roundoff = 0x1p-8;
  declared.activation_bits = 8;
  declared.activation_block = 256;
  declared.cache_k = ops::CacheType::q8_0;
  declared.cache_v = ops::CacheType::f32;
  declared.own_sums = declared.activation_scale_f16 = declared.activations_f16 = declared.as_llama_cpp =
      declared.gelu_table_f16 = declared.rope_angle_f32 = true;
  return header;
}

TEST(Dump, ReadsWhatItWrote) {
  const test::TempFolder folder;
  const std::string path = folder / "a.dump";
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const std::vector<int32_t> tokens = {1, 9}, positions = {0, 1}, sequences = {7, 7}, next_position = {2},
                             next_sequence = {7};
  const std::vector<uint8_t> outputs = {0, 1}, none = {0};
  {
    DumpWriter writer(path, some_header());
    writer.begin_batch({tokens, positions, sequences, outputs});
    writer.add("blk.0.attn_q", 2, 3, std::vector<double>{1, -0.0, 0.1f, nan, -infinity, 0x1p-149}, false);
    writer.add("output", 1, 2, std::vector<double>{0.1, 1e300}, true);
    writer.begin_batch({std::span(tokens).subspan(1), next_position, next_sequence, none});
    writer.add("output", 0, 2, {}, false);
    writer.add("attention", 1, 9000, std::vector<double>(9000, 2.5), false);  // more than one buffer
    writer.finish();
  }
  DumpReader reader(path);
  EXPECT_EQ(reader.header().engine, "engine 1");
  EXPECT_EQ(reader.header().model, "M");
  EXPECT_EQ(reader.header().architecture, "llama");
  EXPECT_EQ(reader.header().text, "a \"text\"\n\xC3\xA9");
  EXPECT_EQ(reader.header().n_layers, 2);
  EXPECT_EQ(reader.header().d_model, 3);
  EXPECT_EQ(reader.header().vocab_size, 10);
  const Declared& declared = reader.header().declared;
  EXPECT_EQ(declared.unit_roundoff, 0x1p-8);
  EXPECT_EQ(declared.activation_bits, 8);
  EXPECT_EQ(declared.activation_block, 256);
  EXPECT_TRUE(declared.own_sums);
  EXPECT_TRUE(declared.activation_scale_f16);
  EXPECT_TRUE(declared.activations_f16);
  EXPECT_TRUE(declared.as_llama_cpp);
  EXPECT_TRUE(declared.rope_angle_f32);
  EXPECT_EQ(declared.cache_k, ops::CacheType::q8_0);
  EXPECT_EQ(declared.cache_v, ops::CacheType::f32);
  EXPECT_TRUE(declared.gelu_table_f16);

  ASSERT_EQ(reader.next(), Kind::batch);
  EXPECT_EQ(reader.batch().tokens, tokens);
  EXPECT_EQ(reader.batch().positions, positions);
  EXPECT_EQ(reader.batch().sequences, sequences);
  EXPECT_EQ(reader.batch().outputs, outputs);
  ASSERT_EQ(reader.next(), Kind::tensor);
  const DumpTensor& tensor = reader.tensor();
  EXPECT_EQ(tensor.op, "blk.0.attn_q");
  EXPECT_EQ(tensor.n_rows, 2);
  EXPECT_EQ(tensor.width, 3);
  EXPECT_FALSE(tensor.is_f64);
  ASSERT_EQ(tensor.values.size(), 6u);
  EXPECT_EQ(tensor.values[0], 1);
  EXPECT_TRUE(tensor.values[1] == 0 && std::signbit(tensor.values[1]));
  EXPECT_EQ(tensor.values[2], double{0.1f});
  EXPECT_TRUE(std::isnan(tensor.values[3]));
  EXPECT_EQ(tensor.values[4], -infinity);
  EXPECT_EQ(tensor.values[5], 0x1p-149);
  ASSERT_EQ(reader.next(), Kind::tensor);
  EXPECT_TRUE(tensor.is_f64);
  EXPECT_EQ(tensor.values, (std::vector<double>{0.1, 1e300}));
  ASSERT_EQ(reader.next(), Kind::batch);
  EXPECT_EQ(reader.batch().positions, next_position);
  ASSERT_EQ(reader.next(), Kind::tensor);
  EXPECT_EQ(tensor.n_rows, 0);
  EXPECT_TRUE(tensor.values.empty());
  ASSERT_EQ(reader.next(), Kind::tensor);
  EXPECT_EQ(tensor.values, std::vector<double>(9000, 2.5));
  EXPECT_EQ(reader.next(), Kind::end);
  EXPECT_EQ(reader.next(), Kind::end);
}

// Field by field, as docs/dump-format.md lists them.
TEST(Dump, BytesAreThoseOfTheFormat) {
  const test::TempFolder folder;
  const std::string path = folder / "a.dump";
  const std::vector<int32_t> tokens = {3}, positions = {0};
  const std::vector<uint8_t> outputs = {1};
  DumpWriter writer(path, some_header());
  writer.begin_batch({tokens, positions, {}, outputs});
  writer.add("ab", 1, 2, std::vector<double>{1.0, -2.0}, false);
  writer.finish();
  const std::string bytes = content(path);
  EXPECT_EQ(bytes.substr(0, 8), "ASSAYDMP");
  EXPECT_EQ(test::number_at<uint32_t>(bytes, 8), 1u);
  const size_t json_length = test::number_at<uint32_t>(bytes, 12);
  EXPECT_EQ(
      bytes.substr(16, json_length),
      R"({"engine":"engine 1","model":"M","architecture":"llama","text":"a \"text\"\n)"
      "\xC3\xA9"
      R"(","n_layers":2,"d_model":3,"vocab_size":10,"declared":{"unit_roundoff_log2":-8,"own_sums":true,"activation_bits":8,"activation_block":256,)"
      R"("activation_scale_f16":true,"activations_f16":true,"as_llama_cpp":true,"cache_k":"q8_0","cache_v":"f32","gelu_table_f16":true,"rope_angle_f32":true}})");
  size_t at = 16 + json_length;
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at), XXH3_64bits(bytes.data(), at));
  at += 8;
  const size_t batch = at;
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at), 1u);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 4), 17u);
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at + 12), 1u);
  EXPECT_EQ(test::number_at<int32_t>(bytes, at + 16), 3);
  EXPECT_EQ(test::number_at<int32_t>(bytes, at + 20), 0);
  EXPECT_EQ(test::number_at<int32_t>(bytes, at + 24), 0);
  EXPECT_EQ(bytes[at + 28], 1);
  at += 12 + 17;
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at), XXH3_64bits(bytes.data() + batch, at - batch));
  at += 8;
  const size_t tensor = at;
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at), 2u);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 4), 24u + 2 + 8);
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at + 12), 0u);
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at + 16), 2u);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 20), 1u);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 28), 2u);
  EXPECT_EQ(bytes.substr(at + 36, 2), "ab");
  EXPECT_EQ(test::number_at<float>(bytes, at + 38), 1.0f);
  EXPECT_EQ(test::number_at<float>(bytes, at + 42), -2.0f);
  at += 46;
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at), XXH3_64bits(bytes.data() + tensor, at - tensor));
  at += 8;
  EXPECT_EQ(test::number_at<uint32_t>(bytes, at), 0u);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 4), 2u);
  at += 12;
  const XXH128_hash_t whole = XXH3_128bits(bytes.data(), at);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at), whole.low64);
  EXPECT_EQ(test::number_at<uint64_t>(bytes, at + 8), whole.high64);
  EXPECT_EQ(bytes.size(), at + 16);
}

TEST(Dump, WriterRepairsTextAndSaysWhereItCannotWrite) {
  const test::TempFolder folder;
  DumpHeader header = some_header();
  header.model = "a\xFF";
  DumpWriter(folder / "a.dump", header).finish();
  EXPECT_EQ(DumpReader(folder / "a.dump").header().model, "a\xEF\xBF\xBD");
  header.text.assign(kDumpHeaderBytesMax, 'x');
  EXPECT_THROW(DumpWriter(folder / "b.dump", header), Error);
  try {
    DumpWriter(folder / "no/folder", some_header());
    FAIL() << "a folder that is not there was written to";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::io);
    EXPECT_THAT(e.what(), testing::HasSubstr("the dump cannot be opened: No such file"));
  }
}

TEST(Dump, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const std::vector<int32_t> tokens = {3}, positions = {0};
  const std::vector<uint8_t> outputs = {1};
  try {
    DumpWriter writer("/dev/full", some_header());
    writer.begin_batch({tokens, positions, {}, outputs});
    writer.finish();
    FAIL() << "a full disk was written to";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::io);
    EXPECT_THAT(e.what(), testing::HasSubstr("/dev/full: the dump cannot be written: No space left"));
  }
}

TEST(Dump, CallsThatBreakTheFormatAreLogicErrors) {
  const test::TempFolder folder;
  const std::vector<int32_t> tokens = {3}, positions = {0};
  const std::vector<uint8_t> outputs = {1}, two = {1, 1};
  DumpWriter writer(folder / "a.dump", some_header());
  const std::vector<double> values = {1, 2};
  EXPECT_THROW(writer.add("a", 1, 2, values, false), std::logic_error);  // before the first batch
  EXPECT_THROW(writer.begin_batch({tokens, positions, {}, two}), std::logic_error);
  EXPECT_THROW(writer.begin_batch({}), std::logic_error);
  writer.begin_batch({tokens, positions, {}, outputs});
  EXPECT_THROW(writer.add("a", 1, 3, values, false), std::logic_error);
  EXPECT_THROW(writer.add("", 1, 2, values, false), std::logic_error);
  EXPECT_THROW(writer.add(std::string(256, 'a'), 1, 2, values, false), std::logic_error);
}

}  // namespace
}  // namespace assay::trace
