#include "assay/edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "assay/error.h"
#include "gguf/file.h"
#include "support/content.h"
#include "support/failing_calls.h"
#include "support/rounds.h"
#include "support/small_vocabularies.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using test::content;

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ino_t inode(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_ino;
}

class EditTest : public ::testing::Test {
 protected:
  EditTest() {
    const text::VocabularyFacts facts = test::byte_level_facts();
    test::TinyLlama spec;
    spec.vocab_size = static_cast<uint32_t>(facts.tokens.size());
    test::TinyLlamaWriter model(spec);
    test::GgufWriter& file = model.file();
    std::vector<int32_t> kinds;
    for (const TokenKind kind : facts.kinds)
      kinds.push_back(kind == TokenKind::control ? 3 : kind == TokenKind::user_defined ? 4 : 1);
    file.set("general.name", "tiny").set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", "gpt-2");
    std::vector<std::string> tokens;
    facts.tokens.for_each([&](size_t, std::string_view token) { tokens.emplace_back(token); });
    file.set("tokenizer.ggml.tokens", tokens);
    file.set("tokenizer.ggml.token_type", kinds)
        .set("tokenizer.ggml.merges", std::vector<std::string>(facts.merges.begin(), facts.merges.end()));
    file.set("tokenizer.ggml.eos_token_id", uint32_t{2}).set("tokenizer.ggml.add_bos_token", false);
    file.write(in());
    old_ = content(in());
  }
  fs::path in() const { return folder_ / "in.gguf"; }
  fs::path out() const { return folder_ / "out.gguf"; }

  EditResult edit(std::vector<Edit> edits, bool in_place = false, bool force = false, bool dry_run = false) const {
    EditOptions options;
    options.edits = std::move(edits);
    options.out = in_place ? "" : out().string();
    options.force = force;
    options.dry_run = dry_run;
    return edit_file(in().string(), options);
  }
  std::string refusal(std::vector<Edit> edits) const {
    try {
      edit(std::move(edits));
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request) << e.what();
      EXPECT_FALSE(fs::exists(out()));
      return e.what();
    }
    return "nothing was thrown";
  }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }
  // All but the metadata is as it was.
  void expect_same_tensors(const fs::path& path, const std::map<std::string, std::string>& names = {}) const {
    const gguf::File a = gguf::File::open(in()), b = gguf::File::open(path);
    ASSERT_EQ(a.tensors().size(), b.tensors().size());
    for (size_t i = 0; i < a.tensors().size(); ++i) {
      const std::string name(a.tensors()[i].name);
      EXPECT_EQ(b.tensors()[i].name, names.contains(name) ? names.at(name) : name);
      EXPECT_TRUE(std::ranges::equal(a.tensors()[i].view.data, b.tensors()[i].view.data));
    }
  }

  test::TempFolder folder_;
  std::string old_;
};

TEST_F(EditTest, SeveralChangesAtOnce) {
  const EditResult result = edit({parse_set("general.name=other: name"),
                                  parse_set("general.author=str:me"),
                                  parse_set("x.list=i32:[1,2]"),
                                  {Edit::Kind::remove, "tokenizer.ggml.add_bos_token"},
                                  parse_set("tokenizer.ggml.eos_token_id=1")});
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_FALSE(result.cancelled);
  std::map<std::string, std::pair<std::string, std::string>> changes;
  for (const EditChange& change : result.changes) changes[change.what] = {change.before, change.after};
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(changes, (std::map<std::string, Pair>{{"general.name", {"string \"tiny\"", "string \"other: name\""}},
                                                  {"general.author", {"", "string \"me\""}},
                                                  {"x.list", {"", "array of 2 i32 [1, 2]"}},
                                                  {"tokenizer.ggml.add_bos_token", {"bool false", ""}},
                                                  {"tokenizer.ggml.eos_token_id", {"u32 2", "u32 1"}}}));
  const gguf::File file = gguf::File::open(out());
  EXPECT_EQ(file.metadata().require_string("general.name"), "other: name");
  EXPECT_EQ(file.metadata().find_integers("x.list"), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(file.metadata().has("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(static_cast<uint64_t>(result.bytes_written), file.file_bytes());
  expect_same_tensors(out());
  EXPECT_EQ(content(in()), old_);
  EXPECT_EQ(n_files(), 2u);
}

TEST_F(EditTest, NoChangeIsTheSameFile) {
  const EditResult result = edit({});
  EXPECT_THAT(result.changes, IsEmpty());
  EXPECT_EQ(content(out()), old_);
  EXPECT_EQ(edit({parse_set("general.name=tiny")}, true).bytes_written, 0);
}

TEST_F(EditTest, WhatIsNotThere) {
  EXPECT_THAT(refusal({{Edit::Kind::remove, "no.such"}}), HasSubstr("there is no key 'no.such' to remove"));
  EXPECT_THAT(refusal({parse_set("no.such=7")}), HasSubstr("a new one needs a type, as in no.such=u32:7"));
  EXPECT_THAT(refusal({parse_rename("no.such=x")}), HasSubstr("there is no tensor 'no.such'"));
  EXPECT_THAT(refusal({parse_rename("output.weight=token_embd.weight")}), HasSubstr("there is one of that name"));
  EXPECT_THAT(refusal({parse_set("tokenizer.ggml.eos_token_id=-1")}), HasSubstr("'-1' is no u32"));
  EXPECT_THAT(refusal({parse_set("split.count=u16:2")}), HasSubstr("assay split"));
}

TEST_F(EditTest, WhatWouldNotLoadIsRefusedWithoutForce) {
  EXPECT_THAT(refusal({parse_set("llama.block_count=3")}), HasSubstr("model: "));
  EXPECT_THAT(refusal({parse_rename("output_norm.weight=lost")}), HasSubstr("--force"));
  EXPECT_THAT(refusal({parse_set("tokenizer.ggml.pre=no-such")}), HasSubstr("no-such"));
  EXPECT_THAT(refusal({parse_set("tokenizer.ggml.eos_token_id=99999")}), HasSubstr("99999"));
  EXPECT_THAT(refusal({parse_set("tokenizer.chat_template=str:{% if %}")}), HasSubstr("template"));
  const std::string message = refusal({parse_set("general.architecture=other")});
  EXPECT_THAT(message, HasSubstr("other"));
  EXPECT_EQ(message.find("/proc"), std::string::npos) << message;
  const EditResult forced = edit({parse_set("llama.block_count=3")}, false, true);
  EXPECT_FALSE(forced.findings.empty());
  EXPECT_EQ(gguf::File::open(out()).metadata().require_unsigned("llama.block_count"), 3u);
}

TEST_F(EditTest, WhatWasWrongBeforeIsNoReason) {
  EXPECT_GT(edit({parse_set("general.architecture=unheard-of")}, true, true).bytes_written, 0);
  EXPECT_THAT(edit({parse_set("general.name=x")}).findings, IsEmpty());
}

TEST_F(EditTest, ADryRunWritesNothing) {
  const EditResult result = edit({parse_set("llama.block_count=3")}, false, false, true);
  EXPECT_EQ(result.changes.size(), 1u);
  EXPECT_FALSE(result.findings.empty());
  EXPECT_EQ(result.bytes_written, 0);
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(EditTest, InPlaceAFewBytesAreWrittenWhereTheyAre) {
  const ino_t before = inode(in());
  const EditResult result = edit({parse_set("tokenizer.ggml.eos_token_id=1")}, true);
  EXPECT_EQ(result.bytes_written, 1);
  EXPECT_EQ(inode(in()), before);
  std::string expected = old_;
  const std::string now = content(in());
  ASSERT_EQ(now.size(), old_.size());
  size_t n_changed = 0;
  for (size_t i = 0; i < now.size(); ++i) n_changed += now[i] != old_[i] ? 1 : 0;
  EXPECT_EQ(n_changed, 1u);
  EXPECT_EQ(gguf::File::open(in()).metadata().require_unsigned("tokenizer.ggml.eos_token_id"), 1u);
}

TEST_F(EditTest, InPlaceAnotherNameOfTheFileKeepsItsBytes) {
  fs::create_hard_link(in(), folder_ / "name.gguf");
  edit({parse_set("tokenizer.ggml.eos_token_id=1")}, true);
  EXPECT_EQ(content(folder_ / "name.gguf"), old_);
  EXPECT_EQ(gguf::File::open(in()).metadata().require_unsigned("tokenizer.ggml.eos_token_id"), 1u);
}

TEST_F(EditTest, InPlaceALongerHeadIsANewFile) {
  const fs::path link = folder_ / "link.gguf";
  fs::create_symlink("in.gguf", link);
  EditOptions options;
  options.edits = {{Edit::Kind::set_text, "general.description", {}, std::string(1000, 'd')}};
  edit_file(link.string(), options);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(gguf::File::open(in()).metadata().require_string("general.description").size(), 1000u);
  EXPECT_EQ(n_files(), 2u);
}

// Where blocks can be shared, a head that fits the old one's place is all that is written, through a file beside it.
TEST_F(EditTest, InPlaceAHeadThatFitsIsWrittenOverAClone) {
  const auto swap_words = parse_set("general.name=ytin");  // as long as it was; and another change far from it
  const auto other = parse_set("tokenizer.ggml.eos_token_id=1");
  edit({swap_words, other});
  const std::string wanted = content(out());
  ASSERT_EQ(wanted.size(), old_.size());
  fs::remove(out());
  test::set_clones(true);
  const ino_t before = inode(in());
  const EditResult result = edit({swap_words, other}, true);
  EXPECT_NE(inode(in()), before);
  EXPECT_TRUE(content(in()) == wanted);
  EXPECT_EQ(n_files(), 1u);
  EXPECT_LT(result.bytes_written, static_cast<int64_t>(old_.size() / 2));
  EXPECT_EQ(gguf::File::open(in()).tensors()[0].file_offset, static_cast<uint64_t>(result.bytes_written));
  std::ofstream(in(), std::ios::binary) << old_;
  test::fail_call(-1);
  edit({swap_words, other}, true);
  const int n = test::n_calls();
  ASSERT_GT(n, 5);
  for (int i = 0; i < n; ++i) {
    std::ofstream(in(), std::ios::binary) << old_;
    test::fail_call(i);
    try {
      edit({swap_words, other}, true);
    } catch (const Error& error) {
      EXPECT_TRUE(error.code == Errc::io || error.code == Errc::out_of_memory) << error.what();
    }
    test::fail_call(-1);
    const std::string now = content(in());
    EXPECT_TRUE(now == old_ || now == wanted) << i;
    EXPECT_EQ(n_files(), 1u) << i;
  }
  test::set_clones(false);
}

TEST_F(EditTest, OutIsNotIn) {
  EditOptions options;
  options.out = in().string();
  EXPECT_THROW(edit_file(in().string(), options), Error);
  fs::create_symlink("in.gguf", out());
  options.out = out().string();
  EXPECT_THROW(edit_file(in().string(), options), Error);
  EXPECT_EQ(content(in()), old_);
}

TEST_F(EditTest, EachCallThatFailsLeavesTheOldFile) {
  for (const char* change :
       {"general.description=str:long enough to move all that follows", "tokenizer.ggml.eos_token_id=1"}) {
    test::fail_call(-1);
    edit({parse_set(change)}, true);
    const std::string wanted = content(in());
    const int n = test::n_calls();
    for (int i = 0; i < n; i += test::rounds(1, test::unless_sanitized(3, 8))) {
      std::ofstream(in(), std::ios::binary) << old_;
      test::fail_call(i);
      std::string error;
      try {
        edit({parse_set(change)}, true);
      } catch (const Error& e) {
        error = e.what();
      }
      test::fail_call(-1);
      EXPECT_NE(error, "") << i;
      const std::string now = content(in());
      EXPECT_TRUE(now == old_ || now == wanted) << i;
      EXPECT_EQ(n_files(), 1u) << i;
    }
    std::ofstream(in(), std::ios::binary) << old_;
  }
}

TEST_F(EditTest, CancelledAtAnyPointItLeavesNothing) {
  int n_asked = 0;
  EditOptions options;
  options.edits = {parse_set("general.name=longer than it was, by far")};
  options.out = out().string();
  options.watch.cancelled = [&] { return ++n_asked, false; };
  int64_t last = 0, total_seen = 0;
  options.watch.progress = [&](int64_t done, int64_t total, std::string_view thing) {
    EXPECT_GT(done, last);
    EXPECT_FALSE(thing.empty());
    last = done;
    total_seen = total;
  };
  edit_file(in().string(), options);
  EXPECT_EQ(last, total_seen);
  fs::remove(out());
  const int n = n_asked;
  ASSERT_GT(n, 10);
  options.watch.progress = {};
  for (int stop = 1; stop <= n; stop += 5) {
    n_asked = 0;
    options.watch.cancelled = [&] { return ++n_asked >= stop; };
    EXPECT_TRUE(edit_file(in().string(), options).cancelled);
    EXPECT_EQ(n_files(), 1u);
  }
}

}  // namespace
}  // namespace assay
