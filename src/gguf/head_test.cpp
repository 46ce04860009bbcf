#include "gguf/head.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "assay/error.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace assay::gguf {
namespace {

using tensor::DType;
using ::testing::HasSubstr;

tensor::Shape shape(std::vector<int64_t> dims) {
  tensor::Shape s;
  s.rank = static_cast<int>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) s.dims[i] = dims[i];
  return s;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request);
    return e.what();
  }
  return "nothing was thrown";
}

// Every type of value, by the tests' own writer and by ours.
TEST(Head, HasTheBytesOfTheIndependentWriter) {
  test::GgufWriter theirs(3, 64);
  Head ours;
  ours.set("general.alignment", Value::of(uint32_t{64}));
  const auto both = [&](std::string_view key, auto value) {
    theirs.set(key, value);
    ours.set(key, Value::of(value));
  };
  both("u8", uint8_t{200});
  both("i8", int8_t{-100});
  both("u16", uint16_t{60'000});
  both("i16", int16_t{-30'000});
  both("u32", uint32_t{4'000'000'000});
  both("i32", int32_t{-2'000'000'000});
  both("u64", std::numeric_limits<uint64_t>::max());
  both("i64", std::numeric_limits<int64_t>::min());
  both("f32", 1.5f);
  both("f64", std::nextafter(1.0, 2.0));
  both("yes", true);
  both("text", "caf\xc3\xa9");
  both("empty", "");
  both("floats", std::vector<float>{1, -2, 3});
  both("bytes", std::vector<uint8_t>{1, 2, 3});
  both("integers", std::vector<int64_t>{-1, 2});
  both("none", std::vector<int32_t>{});
  both("flags", std::vector<bool>{true, false, true});
  const std::vector<std::string> texts = {"a", "", "bc"};
  theirs.set("texts", texts);
  ours.set("texts", Value::of(std::span<const std::string>(texts)));
  theirs.tensor("a", {3}, {1, 2, 3});
  ours.declare("a", DType::F32, shape({3}));
  const std::vector<std::byte> blocks(3 * 2 * 34);
  theirs.tensor("b", DType::Q8_0, {3, 2, 32}, blocks);
  ours.declare("b", DType::Q8_0, shape({3, 2, 32}));
  const Layout layout = lay_out(ours);
  const test::Bytes expected = theirs.bytes();
  ASSERT_EQ(layout.file_bytes, expected.size());
  EXPECT_EQ(layout.offsets, (std::vector<uint64_t>{layout.head.size(), layout.head.size() + 64}));
  EXPECT_EQ(layout.end(0), layout.offsets[1]);
  EXPECT_EQ(layout.end(1), layout.file_bytes);
  EXPECT_EQ(test::Bytes(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(layout.head.size())),
            layout.head);
}

// A file by Python's gguf package (tools/goldens/make_gguf.py).
TEST(Head, HasTheBytesOfPythonsPackage) {
  Head head;
  head.set("general.architecture", Value::of("llama"))
      .set("u8", Value::of(uint8_t{200}))
      .set("i8", Value::of(int8_t{-100}));
  head.set("u16", Value::of(uint16_t{60'000}))
      .set("i16", Value::of(int16_t{-30'000}))
      .set("u32", Value::of(uint32_t{4'000'000'000}));
  head.set("i32", Value::of(int32_t{-2'000'000'000}))
      .set("u64", Value::of(~uint64_t{0}))
      .set("i64", Value::of(std::numeric_limits<int64_t>::min()));
  head.set("f32", Value::of(1.5f))
      .set("f64", Value::of(0.1))
      .set("yes", Value::of(true))
      .set("text", Value::of("caf\xc3\xa9"));
  const std::vector<std::string> texts = {"a", "", "bc"};
  head.set("texts", Value::of(std::span<const std::string>(texts)))
      .set("integers", Value::of(std::vector<int32_t>{-1, 2}));
  head.set("floats", Value::of(std::vector<float>{0.5f, -2})).set("flags", Value::of(std::vector<bool>{true, false}));
  head.declare("a", DType::F32, shape({3})).declare("b", DType::F32, shape({2, 5}));
  head.declare("c", DType::F16, shape({2, 3, 4})).declare("d", DType::Q8_0, shape({2, 32}));
  std::ifstream in(test::data("gguf/python.gguf"), std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const Layout layout = lay_out(head);
  ASSERT_EQ(layout.file_bytes, file.size());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(layout.head.data()), layout.head.size()),
            file.substr(0, layout.head.size()));
  EXPECT_EQ(static_cast<int>(file[layout.offsets[3] + 67]), 67);  // the last byte of "d"
}

TEST(Head, ReadsAndWritesTheSame) {
  test::GgufWriter writer(3, 128);
  writer.set("general.architecture", "llama")
      .set("xs", std::vector<float>{1, 2})
      .set("texts", std::vector<std::string>{"a", "b"});
  test::Bytes nested;  // an array of two arrays
  test::append(nested, uint32_t{9});
  test::append(nested, uint64_t{2});
  for (int i = 0; i < 2; ++i) {
    test::append(nested, uint32_t{5});
    test::append(nested, uint64_t{1});
    test::append(nested, int32_t{i});
  }
  writer.raw_entry("nested", test::kGgufArray, nested);
  writer.set("split.no", uint16_t{0}).set("split.count", uint16_t{0});  // as llama-gguf-split leaves a merged file
  writer.tensor("a", {2, 2}, {1, 2, 3, 4}).tensor("b", {1}, {5});
  const test::Bytes bytes = writer.bytes();
  const Head head(File::parse(bytes));
  EXPECT_EQ(head.entries().size(), 5u);
  EXPECT_EQ(head.find("split.no"), nullptr);
  EXPECT_EQ(head.alignment(), 128u);
  const Layout layout = lay_out(head);
  test::Bytes again = layout.head;
  again.resize(layout.file_bytes);
  const File file = File::parse(again);
  EXPECT_EQ(Value::of(*file.metadata().find("nested")), Value::of(*File::parse(bytes).metadata().find("nested")));
  EXPECT_EQ(file.tensors()[0].view.shape, shape({2, 2}));
}

TEST(Head, SetsRemovesRenames) {
  Head head;
  head.set("a", Value::of(1)).set("b", Value::of(2)).set("a", Value::of("x"));
  ASSERT_EQ(head.entries().size(), 2u);
  EXPECT_EQ(head.entries()[0].second, Value::of("x"));
  EXPECT_TRUE(head.remove("a"));
  EXPECT_FALSE(head.remove("a"));
  head.declare("p", DType::F32, shape({1})).declare("q", DType::F32, shape({1}));
  head.rename("p", "r");
  EXPECT_EQ(head.tensors()[0].name, "r");
  EXPECT_THAT(refusal([&] { head.rename("p", "s"); }), HasSubstr("there is no tensor 'p'"));
  EXPECT_THAT(refusal([&] { head.rename("r", "q"); }), HasSubstr("there is one of that name"));
  head.rename("q", "p");
  EXPECT_EQ(head.tensors()[1].name, "p");
}

TEST(Head, RefusesWhatTheReaderWould) {
  Head head;
  EXPECT_THAT(refusal([&] { head.set("", Value::of(1)); }), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal([&] { head.set(std::string(kKeyBytesMax + 1, 'k'), Value::of(1)); }),
              HasSubstr("1 to 65535 are possible"));
  EXPECT_THAT(refusal([&] { head.set("k", Value::of(std::string(kStringBytesMax + 1, 'v'))); }),
              HasSubstr("the limit of a string"));
  EXPECT_THAT(refusal([&] { head.declare(std::string(64, 'n'), DType::F32, shape({1})); }),
              HasSubstr("has 64 bytes; 1 to 63"));
  EXPECT_THAT(refusal([&] { head.declare("", DType::F32, shape({1})); }), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal([&] {
                head.declare("w", DType::Q4_K, shape({2, 128}));
              }),
              HasSubstr("rows of 128 elements; Q4_K needs a multiple of 256"));
  EXPECT_THAT(refusal([&] { head.declare("w", DType::F32, shape({2, 0})); }), HasSubstr("a dimension of 0"));
  EXPECT_THAT(refusal([&] {
                head.declare("w", DType::F32, shape({int64_t{1} << 40, int64_t{1} << 40}));
              }),
              HasSubstr("beyond 2^63"));
  head.declare("w", DType::F32, shape({1}));
  EXPECT_THAT(refusal([&] { head.declare("w", DType::F32, shape({1})); }), HasSubstr("is there twice"));
  head.set("general.alignment", Value::of(uint32_t{24}));
  EXPECT_THAT(refusal([&] { lay_out(head); }), HasSubstr("'general.alignment' is 24; a power of two"));
  head.set("general.alignment", Value::of(32));
  EXPECT_THAT(refusal([&] { lay_out(head); }), HasSubstr("is i32; u32 is needed"));
}

TEST(Split, ByTensorsAndByBytes) {
  Head head;
  head.set("general.architecture", Value::of("llama"));
  for (const int n : {10, 10, 30, 8, 8, 8})
    head.declare(fmt::format("t{}", head.tensors().size()), DType::F32, shape({n}));  // 40, 40, 120, 32 ..
  const auto counts = [](const std::vector<Head>& heads) {
    std::vector<size_t> n;
    for (const Head& h : heads) n.push_back(h.tensors().size());
    return n;
  };
  EXPECT_EQ(counts(split(head, {.n_tensors_max = 4})), (std::vector<size_t>{4, 2}));
  EXPECT_EQ(counts(split(head, {.bytes_max = 128})), (std::vector<size_t>{2, 1, 3}));  // 64 + 64, 128, 3 x 32
  EXPECT_EQ(counts(split(head, {.bytes_max = 127})), (std::vector<size_t>{1, 1, 1, 3}));
  EXPECT_EQ(counts(split(head, {})), (std::vector<size_t>{6}));
  const std::vector<Head> heads = split(head, {.n_tensors_max = 4});
  EXPECT_EQ(heads[0].entries().size(), 4u);
  EXPECT_EQ(heads[1].entries().size(), 3u);
  const auto& entries = heads[1].entries();
  EXPECT_EQ(entries[0], std::pair("split.no" + std::string(), Value::of(uint16_t{1})));
  EXPECT_EQ(entries[1], std::pair("split.tensors.count" + std::string(), Value::of(int32_t{6})));
  EXPECT_EQ(entries[2], std::pair("split.count" + std::string(), Value::of(uint16_t{2})));
}

}  // namespace
}  // namespace assay::gguf
