#include "gguf/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/error.h"
#include "support/gguf_writer.h"

namespace assay::gguf {
namespace {

using ::testing::HasSubstr;

TEST(Override, ValuesAreReadByTheirTypes) {
  const auto all = parse_overrides("a.b=int:7,c=float:-0.5,d=bool:true,e=str:x, y=z,f=str:");
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].key, "a.b");
  EXPECT_EQ(all[0].value, Value::of(uint32_t{7}));
  EXPECT_EQ(all[1].value, Value::of(-0.5f));
  EXPECT_EQ(all[2].value, Value::of(true));
  EXPECT_EQ(all[3].value, Value::of("x, y=z"));
}

TEST(Override, AnythingElseIsRefused) {
  for (const char* bad :
       {"", "x", "=int:1", "x=", "x=int", "x=int:1.5", "x=int:", "x=int:-1", "x=int:4294967296", "x=bool:yes", "x=u8:1",
        "x=float:abc", "x=float:nan", "x=float:inf", "x=int:1,", ",x=int:1"}) {
    try {
      parse_overrides(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request);
      EXPECT_THAT(e.what(), HasSubstr(std::string("--override-kv '") + bad + "': needs")) << bad;
    }
  }
}

TEST(Override, AValueIsPutInThePlaceOfTheFiles) {
  test::GgufWriter writer;
  writer.set("first", uint32_t{1}).set("list", std::vector<int32_t>{1, 2}).set("last", "text");
  const auto bytes = writer.bytes();
  OverrideStorage storage;
  File file = File::parse(bytes);
  for (const Override& one : parse_overrides("new=str:a text of its own,list=int:9,first=int:9"))
    put(file, one, storage);
  EXPECT_FALSE(entry_of(file, "first")->read);
  EXPECT_EQ(entry_of(file, "none"), nullptr);
  const File moved = std::move(file);
  const Metadata& metadata = moved.metadata();
  EXPECT_EQ(metadata.require_unsigned("first"), 9u);
  EXPECT_EQ(metadata.require_unsigned("list"), 9u);
  EXPECT_EQ(metadata.require_string("new"), "a text of its own");
  EXPECT_EQ(metadata.require_string("last"), "text");
  ASSERT_EQ(metadata.entries().size(), 4u);
  EXPECT_EQ(metadata.entries()[3].key, "new");
}

}  // namespace
}  // namespace assay::gguf
