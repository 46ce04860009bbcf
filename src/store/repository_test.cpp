// What `pull` is asked for, and what a repository's list of files offers for it.
#include "store/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "assay/error.h"
#include "assay/store.h"
#include "store/names.h"

namespace assay::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kDigest(64, '5');

template <class Work>
std::string refusal(Errc code, Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code), static_cast<int>(code)) << error.what();
    return error.what();
  }
  return "accepted";
}

std::vector<RepositoryFile> files(std::initializer_list<const char*> paths) {
  std::vector<RepositoryFile> result;
  for (const char* path : paths) result.push_back({path, 100, kDigest});
  return result;
}

TEST(PullWhat, ShortNamesAreRepositories) {
  for (const ShortName& known : short_names()) {
    EXPECT_TRUE(is_repository(known.repository)) << known.name;
    EXPECT_EQ(parse_what(std::string(known.name)).repository, known.repository);
  }
  const Wanted wanted = parse_what("Gemma3:Q8_0");
  EXPECT_EQ(wanted.short_name, "gemma3");
  EXPECT_EQ(wanted.quant, "Q8_0");
}

TEST(PullWhat, RepositoriesAndAddresses) {
  for (const char* what : {"u/r:Q4_0", "hf.co/u/r:Q4_0", "huggingface.co/u/r:Q4_0"}) {
    EXPECT_EQ(parse_what(what).repository, "u/r") << what;
    EXPECT_EQ(parse_what(what).quant, "Q4_0") << what;
  }
  EXPECT_EQ(parse_what("https://huggingface.co/u/r").repository, "u/r");
  EXPECT_EQ(parse_what("https://hf.co/u/r/tree/main").repository, "u/r");
  for (const char* kind : {"blob", "resolve"}) {
    const Wanted wanted =
        parse_what(std::string("https://huggingface.co/u/r/") + kind + "/main/sub/m%20x-Q4_0.gguf?download=true");
    EXPECT_EQ(wanted.repository, "u/r");
    EXPECT_EQ(wanted.quant, "sub/m x-Q4_0.gguf");
  }
  for (const char* what : {"http://127.0.0.1:8080/m.gguf", "https://huggingface.co/u/r/resolve/v1/m.gguf",
                           "https://evil.example/huggingface.co/u/r"}) {
    EXPECT_EQ(parse_what(what).url, what);
    EXPECT_EQ(parse_what(what).repository, "");
  }
  EXPECT_THAT(refusal(Errc::bad_request, [] { parse_what("ftp://host/m.gguf"); }), HasSubstr("only http and https"));
  EXPECT_THAT(refusal(Errc::bad_request, [] { parse_what("file:///etc/passwd"); }), HasSubstr("only http and https"));
  for (const char* what : {"", "nothing", "../x", "u/r/s", "u/..", ":Q4_0"}) {
    EXPECT_THAT(refusal(Errc::bad_request, [&] { parse_what(what); }), HasSubstr("smollm2")) << what;
  }
}

TEST(PullWhat, NamesOfFilesInAddresses) {
  EXPECT_EQ(file_name_of("https://h/a/m.gguf?x=1#y"), "m.gguf");
  EXPECT_EQ(file_name_of("https://h"), "");
  EXPECT_EQ(file_name_of("https://h/"), "");
  EXPECT_EQ(file_name_of("https://h/..%2f..%2fetc%2fx.gguf"),
            "../../etc/x.gguf");  // refused where it would become a file
  EXPECT_EQ(with_file_name("https://h/a/m-1.gguf?x=1", "m 2.gguf"), "https://h/a/m%202.gguf?x=1");
  EXPECT_EQ(encode_path("a b/ü+#?%.gguf"), "a%20b/%C3%BC%2B%23%3F%25.gguf");
  EXPECT_EQ(decode_percent("a%20b%zz%4"), "a b%zz%4");
}

TEST(PullTree, TakesModelsAndTheirDigests) {
  const auto found = parse_tree(R"([
    {"type":"directory","path":"sub"}, {"type":"file","path":"README.md","size":5},
    {"type":"file","path":"sub/m-Q4_0.gguf","size":130,"oid":"git","lfs":{"oid":")" +
                                kDigest + R"(","size":5000000000,"pointerSize":130}},
    {"type":"file","path":"small.gguf","size":7}])");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, "sub/m-Q4_0.gguf");
  EXPECT_EQ(found[0].bytes, 5000000000);
  EXPECT_EQ(found[0].sha256, kDigest);
  EXPECT_EQ(found[1].sha256, "");
}

// B79, B82.
TEST(PullTree, HostileListsAreRefused) {
  for (const char* text : {"", "{", "{}", "<html>", "null", "[1,", "\"x\""}) {
    EXPECT_THAT(refusal(Errc::io, [&] { parse_tree(text); }), HasSubstr("no JSON array")) << text;
  }
  refusal(Errc::io, [] { parse_tree(std::string(100000, '[')); });
  for (const char* path :
       {"../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "a\\\\x.gguf", "a\\n.gguf", ".x.gguf", "a//x.gguf"}) {
    const std::string text = std::string(R"([{"type":"file","path":")") + path + R"(","size":1}])";
    EXPECT_THAT(refusal(Errc::io, [&] { parse_tree(text); }), HasSubstr("leave its folder")) << path;
  }
  EXPECT_TRUE(parse_tree(R"([1, null, [], {"type":"file"}, {"type":"file","path":5}, {"path":"x.gguf"}])").empty());
  const auto odd = parse_tree(R"([{"type":"file","path":"x.gguf","size":-5,"lfs":{"oid":"../../x","size":1e300}}])");
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].bytes, -1);
  EXPECT_EQ(odd[0].sha256, "");
}

TEST(PullChoice, TheDefaultElseTheNearest) {
  EXPECT_EQ(choose(files({"m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-Q4_K_M.gguf"}), "", "u/r").parts[0].path,
            "m-Q4_K_M.gguf");
  const Choice nearest = choose(files({"m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q5_0.gguf", "m-F16.gguf"}), "", "u/r");
  EXPECT_EQ(nearest.quant, "Q4_0");
  EXPECT_THAT(nearest.remark, AllOf(HasSubstr("has no Q4_K_M"), HasSubstr("taking Q4_0"), HasSubstr("F16")));
  EXPECT_EQ(choose(files({"model.gguf"}), "", "u/r").quant, "model");
  EXPECT_EQ(choose(files({"m-Q8_0.gguf", "m-Q4_K_M.gguf"}), "q8_0", "u/r").quant, "Q8_0");
  EXPECT_EQ(choose(files({"m-Q8_0.gguf", "m-Q4_K_M.gguf"}), "m-Q8_0.gguf", "u/r").quant, "Q8_0");
}

TEST(PullChoice, AllPartsInOrder) {
  const Choice choice = choose(
      files({"Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf"}), "Q8_0", "u/r");
  ASSERT_EQ(choice.parts.size(), 2u);
  EXPECT_EQ(choice.parts[0].path, "Q8_0/m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(choice.parts[1].path, "Q8_0/m-Q8_0-00002-of-00002.gguf");
  EXPECT_THAT(refusal(Errc::bad_request, [] { choose(files({"m-Q8_0-00001-of-00003.gguf"}), "Q8_0", "u/r"); }),
              HasSubstr("no part 2 of 3"));
}

TEST(PullChoice, WhatIsNotThereIsRefusedWithWhatIs) {
  EXPECT_THAT(refusal(Errc::bad_request,
                      [] {
                        choose(files({"m-Q8_0.gguf", "m-Q4_0.gguf"}), "Q6_K", "u/r");
                      }),
              AllOf(HasSubstr("Q6_K"), HasSubstr("Q4_0, Q8_0")));
  EXPECT_THAT(refusal(Errc::bad_request, [] { choose({}, "", "u/r"); }), HasSubstr("no GGUF model"));
  EXPECT_THAT(refusal(Errc::bad_request,
                      [] {
                        choose(files({"a-Q4_0.gguf", "b/c-Q4_0.gguf"}), "Q4_0", "u/r");
                      }),
              AllOf(HasSubstr("several"), HasSubstr("a-Q4_0.gguf"), HasSubstr("b/c-Q4_0.gguf")));
  EXPECT_EQ(choose(files({"a-Q4_0.gguf", "b/c-Q4_0.gguf"}), "b/c-Q4_0.gguf", "u/r").parts[0].path, "b/c-Q4_0.gguf");
}

}  // namespace
}  // namespace assay::store
