// Broken dumps: each is refused by one Error that says what is wrong, whatever was cut, flipped or claimed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "assay/error.h"
#include "support/dump_bytes.h"
#include "support/temp_folder.h"
#include "trace/dump.h"

namespace assay::trace {
namespace {

using test::put_number;
using ::testing::HasSubstr;

struct Layout {  // where the parts of good_dump() begin
  size_t batch = 0, tensor = 0, second_batch = 0, trailer = 0;
};

std::string good_dump(Layout* layout = nullptr) {
  const test::TempFolder folder;
  const std::string path = folder / "good.dump";
  DumpHeader header;
  header.engine = "e";
  header.architecture = "llama";
  header.n_layers = 1;
  header.d_model = 2;
  header.vocab_size = 10;
  const std::vector<int32_t> tokens = {1, 9}, positions = {0, 1}, last = {4}, last_position = {2};
  const std::vector<uint8_t> outputs = {0, 1}, last_output = {1};
  DumpWriter writer(path, header);
  writer.begin_batch({tokens, positions, {}, outputs});
  writer.add("token_embd", 2, 2, std::vector<double>{1, 2, 3, 4}, false);
  writer.begin_batch({last, last_position, {}, last_output});
  writer.add("output", 1, 2, std::vector<double>{1, 2}, true);
  writer.finish();
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (layout != nullptr) {
    layout->batch = 16 + test::number_at<uint32_t>(bytes, 12) + 8;
    layout->tensor = layout->batch + 12 + 4 + 26 + 8;
    layout->second_batch = layout->tensor + 12 + 24 + 10 + 16 + 8;
    layout->trailer = bytes.size() - 28;
  }
  return bytes;
}

void read_whole(DumpReader reader) {
  while (reader.next() != DumpReader::Kind::end) {
  }
}

std::string refusal(const std::string& bytes) {
  try {
    read_whole(DumpReader::from_bytes(bytes));
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_file) << e.what();
    return e.what();
  }
  return "taken";
}

// The refusal of the good dump after a change, with hashes that fit it.
std::string refusal_after(const std::function<void(std::string&, const Layout&)>& change) {
  Layout layout;
  std::string bytes = good_dump(&layout);
  change(bytes, layout);
  return refusal(test::with_hashes(bytes));
}

TEST(BadDump, TheGoodOneIsTaken) {
  EXPECT_EQ(refusal(good_dump()), "taken");
  EXPECT_EQ(test::with_hashes(good_dump()), good_dump());
}

TEST(BadDump, CutAnywhere) {
  const std::string good = good_dump();
  for (size_t n = 0; n < good.size(); ++n) {
    const std::string message = refusal(good.substr(0, n));
    EXPECT_THAT(message, testing::AnyOf(HasSubstr("the dump is cut"), HasSubstr("is no dump"))) << n;
  }
  Layout layout;
  const std::string bytes = good_dump(&layout);
  EXPECT_THAT(refusal(bytes.substr(0, layout.trailer)), HasSubstr("after 4 records its trailer is missing"));
  EXPECT_THAT(refusal(bytes.substr(0, layout.tensor + 50)),
              HasSubstr("record 1 needs 50 bytes for a tensor, 38 are left"));
  EXPECT_THAT(refusal(bytes.substr(0, 30)), HasSubstr("the header needs"));
}

TEST(BadDump, EveryBitCounts) {
  const std::string good = good_dump();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      EXPECT_NE(refusal(bytes), "taken") << "byte " << i << " bit " << bit;
    }
  }
}

TEST(BadDump, HashesThatDifferAreNamed) {
  Layout layout;
  std::string bytes = good_dump(&layout);
  bytes[layout.tensor + 50] = 1;  // a value
  EXPECT_THAT(refusal(bytes), HasSubstr("record 1 is damaged: its XXH3-64 is "));
  bytes = good_dump();
  bytes[20] ^= 1;
  EXPECT_THAT(refusal(bytes), HasSubstr("the header is damaged"));
  bytes = good_dump();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  EXPECT_THAT(refusal(bytes), HasSubstr("the dump is damaged: its XXH3-128 is "));
  // A record taken out whole leaves the others right.
  bytes = good_dump();
  bytes.erase(layout.tensor, layout.second_batch - layout.tensor);
  EXPECT_THAT(refusal(bytes), HasSubstr("the dump is damaged: its XXH3-128 is "));
  EXPECT_THAT(refusal(test::with_hashes(bytes)), HasSubstr("the trailer: needs 3 records, as were found, but says 4"));
  EXPECT_THAT(refusal(good_dump() + "x"), HasSubstr("needs to end after its trailer, found 1 more bytes"));
}

TEST(BadDump, OtherFilesAndVersions) {
  EXPECT_THAT(refusal("GGUF\3aaaaaaaaaaaaaaaaaaaaaaa"),
              HasSubstr("needs to begin with 'ASSAYDMP', found 'GGUF\\x03aaa'"));
  EXPECT_THAT(refusal(""), HasSubstr("is no dump: needs at least 16 bytes, found 0"));
  EXPECT_THAT(refusal_after([](std::string& b, const Layout&) { put_number(b, 8, uint32_t{2}); }),
              HasSubstr("version: needs 1, found 2"));
  EXPECT_THAT(refusal_after([](std::string& b, const Layout&) { put_number(b, 8, uint32_t{1 << 24}); }),
              HasSubstr("found 16777216"));
}

TEST(BadDump, AbsurdLengthsAllocateNothing) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto after_number = [](size_t Layout::*part, size_t offset, auto value) {
    return refusal_after([=](std::string& b, const Layout& layout) { put_number(b, layout.*part + offset, value); });
  };
  EXPECT_THAT(refusal_after([](std::string& b, const Layout&) { put_number(b, 12, UINT32_MAX); }),
              HasSubstr("the header's length: needs at most 1048576, found 4294967295"));
  EXPECT_THAT(refusal_after([](std::string& b, const Layout&) { put_number(b, 12, uint32_t{1} << 20); }),
              HasSubstr("the dump is cut"));
  EXPECT_THAT(after_number(&Layout::batch, 4, UINT64_MAX), HasSubstr("needs 18446744073709551615 bytes for a batch"));
  EXPECT_THAT(after_number(&Layout::batch, 4, uint64_t{3}), HasSubstr("a batch needs 4 bytes at least, found 3"));
  EXPECT_THAT(after_number(&Layout::batch, 12, uint32_t{0}), HasSubstr("needs 1 to 1048576 tokens, found 0"));
  EXPECT_THAT(after_number(&Layout::batch, 12, UINT32_MAX), HasSubstr("needs 1 to 1048576 tokens, found 4294967295"));
  EXPECT_THAT(after_number(&Layout::batch, 12, uint32_t{3}), HasSubstr("a batch of 3 tokens needs 43 bytes, found 30"));
  EXPECT_THAT(after_number(&Layout::tensor, 4, UINT64_MAX), HasSubstr("for a tensor"));
  EXPECT_THAT(after_number(&Layout::tensor, 4, uint64_t{23}), HasSubstr("a tensor needs 24 bytes at least, found 23"));
  EXPECT_THAT(after_number(&Layout::tensor, 12, uint32_t{2}),
              HasSubstr("needs element type 0 (f32) or 1 (f64), found 2"));
  EXPECT_THAT(after_number(&Layout::tensor, 16, uint32_t{0}), HasSubstr("needs a name of 1 to 255 bytes, found 0"));
  EXPECT_THAT(after_number(&Layout::tensor, 16, UINT32_MAX),
              HasSubstr("needs a name of 1 to 255 bytes, found 4294967295"));
  EXPECT_THAT(after_number(&Layout::tensor, 20, uint64_t{3}),
              HasSubstr("needs 2 rows (the batch's tokens) or 1 (its outputs), found 3"));
  EXPECT_THAT(after_number(&Layout::tensor, 20, UINT64_MAX), HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(after_number(&Layout::tensor, 28, uint64_t{0}), HasSubstr("needs a width from 1"));
  EXPECT_THAT(after_number(&Layout::tensor, 28, UINT64_MAX), HasSubstr("needs a width from 1"));
  EXPECT_THAT(after_number(&Layout::tensor, 28, uint64_t{1} << 28),
              HasSubstr("268435456 values at most, found 2 rows of 268435456"));
  EXPECT_THAT(after_number(&Layout::tensor, 28, uint64_t{1} << 27), HasSubstr("need 1073741858 bytes, found 50"));
  EXPECT_THAT(after_number(&Layout::tensor, 0, uint32_t{3}),
              HasSubstr("needs kind 1 (batch), 2 (tensor) or 0 (trailer), found 3"));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10);
}

TEST(BadDump, ValuesOutOfTheirRange) {
  const auto after_number = [](size_t Layout::*part, size_t offset, auto value) {
    return refusal_after([=](std::string& b, const Layout& layout) { put_number(b, layout.*part + offset, value); });
  };
  EXPECT_THAT(after_number(&Layout::batch, 16, int32_t{10}),
              HasSubstr("record 0: token 0: needs an id from 0 to 9, found 10"));
  EXPECT_THAT(after_number(&Layout::batch, 16, int32_t{-1}), HasSubstr("found -1"));
  EXPECT_THAT(after_number(&Layout::batch, 24, int32_t{1}),
              HasSubstr("token 0: needs position 0 of sequence 0, found 1"));
  EXPECT_THAT(after_number(&Layout::batch, 28, int32_t{-1}),
              HasSubstr("token 1: needs position 1 of sequence 0, found -1"));
  EXPECT_THAT(after_number(&Layout::batch, 32, int32_t{-1}), HasSubstr("needs a sequence from 0 to 65535, found -1"));
  EXPECT_THAT(after_number(&Layout::batch, 32, int32_t{65536}), HasSubstr("found 65536"));
  EXPECT_THAT(after_number(&Layout::batch, 40, uint8_t{2}), HasSubstr("its output flag needs 0 or 1, found 2"));
  EXPECT_THAT(after_number(&Layout::second_batch, 20, int32_t{0}),
              HasSubstr("token 0: needs position 2 of sequence 0, found 0"));
  EXPECT_THAT(after_number(&Layout::tensor, 36, uint8_t{0xFF}),
              HasSubstr("record 1: its name '\\xffoken_embd' is no UTF-8"));
  EXPECT_THAT(refusal_after([](std::string& b, const Layout& l) { b.erase(l.batch, l.tensor - l.batch); }),
              HasSubstr("record 0: a tensor before the first batch"));
}

std::string refusal_of_header(const std::string& json) {
  Layout layout;
  std::string bytes = good_dump(&layout);
  bytes.replace(16, layout.batch - 8 - 16, json);
  put_number(bytes, 12, static_cast<uint32_t>(json.size()));
  return refusal(test::with_hashes(bytes));
}

TEST(BadDump, Headers) {
  const std::string declared =
      R"("declared":{"unit_roundoff_log2":-24,"activation_bits":0,"cache_k":"f32","cache_v":"f32"})";
  const std::string shape = R"("engine":"e","architecture":"llama","n_layers":1,"d_model":2,"vocab_size":10)";
  EXPECT_EQ(refusal_of_header("{" + shape + "," + declared + R"(,"unknown":[1,{"a":null}]})"), "taken");
  EXPECT_THAT(refusal_of_header(""), HasSubstr("header: needs JSON in UTF-8: incomplete"));
  EXPECT_THAT(refusal_of_header("{"), HasSubstr("header: needs JSON in UTF-8"));
  EXPECT_THAT(refusal_of_header("{} {}"), HasSubstr("header: needs JSON in UTF-8: extra data"));
  EXPECT_THAT(refusal_of_header("{\"engine\":\"\xFF\"}"), HasSubstr("header: needs JSON in UTF-8"));
  EXPECT_THAT(refusal_of_header(std::string(100000, '[')), HasSubstr("header: needs JSON in UTF-8"));
  EXPECT_THAT(refusal_of_header("[1]"), HasSubstr("header: the whole: needs a JSON object, found [1]"));
  EXPECT_THAT(refusal_of_header("{}"), HasSubstr("header: needs the key \"engine\""));
  EXPECT_THAT(refusal_of_header(R"({"engine":1})"), HasSubstr("header: engine: needs a text, found 1"));
  EXPECT_THAT(refusal_of_header("{" + shape + "}"), HasSubstr("header: needs the key \"declared\""));
  EXPECT_THAT(refusal_of_header("{" + shape + R"(,"declared":3})"),
              HasSubstr("header: declared: needs an object, found 3"));
  EXPECT_THAT(refusal_of_header(R"({"engine":"e","architecture":"llama","n_layers":1e999})"), HasSubstr("header: "));
  EXPECT_THAT(refusal_of_header(R"({"engine":"e","architecture":"llama","n_layers":0})"),
              HasSubstr("n_layers: needs an integer from 1 to 65536, found 0"));
  EXPECT_THAT(refusal_of_header(R"({"engine":"e","architecture":"llama","n_layers":"2"})"), HasSubstr("found \"2\""));
  EXPECT_THAT(refusal_of_header("{" + shape + R"(,"declared":{"unit_roundoff_log2":0}})"),
              HasSubstr("needs an integer from -64 to -1, found 0"));
  EXPECT_THAT(refusal_of_header("{" + shape + R"(,"declared":{"unit_roundoff_log2":-24,"activation_bits":4}})"),
              HasSubstr("activation_bits: needs 0, 8 or 15, found 4"));
  EXPECT_THAT(refusal_of_header("{" + shape +
                                R"(,"declared":{"unit_roundoff_log2":-24,"activation_bits":8,"activation_block":7}})"),
              HasSubstr("activation_block: needs 0, 32 or 256, found 7"));
  EXPECT_THAT(
      refusal_of_header("{" + shape + R"(,"declared":{"unit_roundoff_log2":-24,"activation_bits":8,"cache_k":"q4"}})"),
      HasSubstr("cache_k: needs \"f32\", \"f16\" or \"q8_0\", found \"q4\""));
  EXPECT_THAT(refusal_of_header("{" + shape +
                                R"(,"declared":{"unit_roundoff_log2":-24,"activation_bits":8,"activations_f16":1}})"),
              HasSubstr("activations_f16: needs true or false, found 1"));
}

TEST(BadDump, Paths) {
  const test::TempFolder folder;
  const auto refused = [](const std::string& path) -> std::string {
    try {
      read_whole(DumpReader(path));
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::io) << e.what();
      return e.what();
    }
    return "taken";
  };
  EXPECT_THAT(refused(folder / "none"), HasSubstr("cannot be opened: No such file"));
  EXPECT_THAT(refused(folder.path()), HasSubstr("is no regular file"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder / "pipe"), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace assay::trace
