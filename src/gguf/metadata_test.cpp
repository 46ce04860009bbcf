#include "gguf/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "assay/error.h"
#include "gguf/file.h"
#include "support/gguf_writer.h"

namespace assay::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MetadataTest : public ::testing::Test {
 protected:
  MetadataTest() {
    writer_.set("u8", uint8_t{200}).set("i8", int8_t{-100}).set("u16", uint16_t{60'000}).set("i16", int16_t{-30'000});
    writer_.set("u32", uint32_t{4'000'000'000}).set("i32", int32_t{-2'000'000'000}).set("u64", uint64_t{1} << 63);
    writer_.set("i64", std::numeric_limits<int64_t>::min())
        .set("f32", 1.5f)
        .set("f64", 0.1)
        .set("yes", true)
        .set("no", false);
    writer_.set("text", "llama").set("empty", "");
    writer_.set("u8s", std::vector<uint8_t>{1, 255})
        .set("i16s", std::vector<int16_t>{-1, 2})
        .set("u64s", std::vector<uint64_t>{1, 2});
    writer_.set("u64s.big", std::vector<uint64_t>{UINT64_MAX})
        .set("f32s", std::vector<float>{1, -2.5f})
        .set("f64s", std::vector<double>{0.25});
    writer_.set("bools", std::vector<bool>{true, false, true}).set("texts", std::vector<std::string>{"a", "", "bcd"});
    writer_.set("none", std::vector<std::string>{});
    bytes_ = writer_.bytes();
    file_.emplace(File::parse(bytes_));
  }
  const Metadata& data() const { return file_->metadata(); }
  std::string message(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_file);
      return error.what();
    }
    return "no error";
  }

  test::GgufWriter writer_;
  test::Bytes bytes_;
  std::optional<File> file_;
};

TEST_F(MetadataTest, IntegersOfEveryWidth) {
  EXPECT_EQ(data().find_unsigned("u8"), 200u);
  EXPECT_EQ(data().find_integer("i8"), -100);
  EXPECT_EQ(data().find_unsigned("u16"), 60'000u);
  EXPECT_EQ(data().find_integer("i16"), -30'000);
  EXPECT_EQ(data().require_unsigned("u32"), 4'000'000'000u);
  EXPECT_EQ(data().find_integer("i32"), -2'000'000'000);
  EXPECT_EQ(data().find_unsigned("u64"), uint64_t{1} << 63);
  EXPECT_EQ(data().find_integer("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(data().find_unsigned("absent"), std::nullopt);
}

TEST_F(MetadataTest, OtherScalars) {
  EXPECT_EQ(data().find_float("f32"), 1.5);
  EXPECT_EQ(data().require_float("f64"), 0.1);
  EXPECT_EQ(data().find_bool("yes"), true);
  EXPECT_EQ(data().find_bool("no"), false);
  EXPECT_EQ(data().require_string("text"), "llama");
  EXPECT_EQ(data().find_string("empty"), "");
}

TEST_F(MetadataTest, Arrays) {
  EXPECT_THAT(*data().find_integers("u8s"), ElementsAre(1, 255));
  EXPECT_THAT(*data().find_integers("i16s"), ElementsAre(-1, 2));
  EXPECT_THAT(*data().find_integers("u64s"), ElementsAre(1, 2));
  EXPECT_THAT(*data().find_floats("f32s"), ElementsAre(1.0f, -2.5f));
  EXPECT_THAT(*data().find_floats("f64s"), ElementsAre(0.25f));
  EXPECT_THAT(*data().find_bools("bools"), ElementsAre(true, false, true));
  EXPECT_THAT(*data().find_strings("texts"), ElementsAre("a", "", "bcd"));
  EXPECT_TRUE(data().require_strings("none").empty());
  EXPECT_EQ(data().find_floats("absent"), std::nullopt);
}

TEST_F(MetadataTest, StringsAreViewsIntoTheFile) {
  const auto* begin = reinterpret_cast<const char*>(bytes_.data());
  for (std::string_view text : {data().require_string("text"), data().require_strings("texts")[2]}) {
    EXPECT_GE(text.data(), begin);
    EXPECT_LE(text.data() + text.size(), begin + bytes_.size());
  }
}

TEST_F(MetadataTest, WrongTypesNameKeyWantedAndFound) {
  EXPECT_EQ(message([&] { (void)data().find_unsigned("text"); }), "metadata 'text' is string; an integer is needed");
  EXPECT_EQ(message([&] { (void)data().find_string("u8"); }), "metadata 'u8' is u8; a string is needed");
  EXPECT_EQ(message([&] { (void)data().find_floats("texts"); }),
            "metadata 'texts' is array of 3 string; an array of floats (f32 or f64) is needed");
  EXPECT_EQ(message([&] { (void)data().find_strings("text"); }),
            "metadata 'text' is string; an array of strings is needed");
  EXPECT_THAT(message([&] { (void)data().find_float("u32"); }), HasSubstr("a float"));
  EXPECT_THAT(message([&] { (void)data().find_bool("u8"); }), HasSubstr("a bool"));
  EXPECT_THAT(message([&] { (void)data().find_bools("u8s"); }), HasSubstr("an array of bools"));
  EXPECT_THAT(message([&] { (void)data().find_integers("f32s"); }), HasSubstr("an array of integers"));
  EXPECT_EQ(message([&] { (void)data().find_unsigned("i8"); }),
            "metadata 'i8' is -100; a number of at least 0 is needed");
  EXPECT_THAT(message([&] { (void)data().find_integer("u64"); }), HasSubstr("2^63"));
  EXPECT_THAT(message([&] { (void)data().find_integers("u64s.big"); }), HasSubstr("2^63"));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { (void)data().require_unsigned("absent"); }, [&] { (void)data().require_float("absent"); },
           [&] { (void)data().require_string("absent"); }, [&] { (void)data().require_strings("absent"); }}) {
    EXPECT_EQ(message(call), "metadata 'absent' is needed and is not in the file");
  }
}

TEST_F(MetadataTest, LooksMarkAnEntryAsRead) {
  const auto n_read = [&] {
    return std::count_if(data().entries().begin(), data().entries().end(),
                         [](const Entry& e) { return e.read.load(); });
  };
  EXPECT_EQ(n_read(), 0);
  EXPECT_TRUE(data().has("text"));
  EXPECT_FALSE(data().has("absent"));
  EXPECT_EQ(n_read(), 0);
  (void)data().find_string("text");
  EXPECT_THROW((void)data().find_bool("u8"), Error);
  EXPECT_EQ(n_read(), 2);
}

}  // namespace
}  // namespace assay::gguf
