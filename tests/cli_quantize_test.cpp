// assay quantize from outside: tables, refusals, interruptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "programs/program.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using test::ProgramResult;
using testing::HasSubstr;
using testing::Not;

class CliQuantize : public testing::Test {
 protected:
  void SetUp() override {
    test::TinyLlama spec;
    spec.dtype = tensor::DType::BF16;
    spec.d_model = 96;  // fits no superblock
    spec.head_dim = 24;
    test::TinyLlamaWriter(spec).file().write(folder_ / "in.gguf");
  }
  ProgramResult quantize(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"quantize", folder_ / "in.gguf"});
    return test::run_program(ASSAY_PROGRAM, arguments);
  }
  std::string out() const { return folder_ / "out.gguf"; }
  test::TempFolder folder_;
};

TEST_F(CliQuantize, DryRunPrintsTypesAndWritesNothing) {
  const ProgramResult r = quantize({"Q4_K_S", "--dry-run"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, testing::ContainsRegex(
                         "blk.0.ffn_down.weight +96 x 512 +BF16 -> Q4_K +27648 bytes +4.5000 bits a weight"));
  EXPECT_THAT(r.out, HasSubstr("Q4_K_S: 21 tensors, "));
  EXPECT_THAT(r.err, HasSubstr("assay: blk.1.attn_q.weight: 96 columns are not whole blocks of Q4_K: Q5_0 instead\n"));
  EXPECT_THAT(r.err, Not(HasSubstr("blk.1.ffn_down.weight")));
  EXPECT_EQ(quantize({out(), "Q4_K_S", "--dry-run"}).out, r.out);
  EXPECT_FALSE(std::filesystem::exists(out()));
  EXPECT_THAT(quantize({"IQ2_XXS", "--pure", "--dry-run"}).err,
              HasSubstr("blk.0.ffn_down.weight as IQ2_XXS needs an importance matrix"));
}

TEST_F(CliQuantize, WritesTheFile) {
  const ProgramResult r = quantize({out(), "q8_0", "-t", "2"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(test::run_program(ASSAY_PROGRAM, {"quantize", out(), "COPY", "--dry-run"}).out,
              HasSubstr("Q8_0 -> Q8_0"));
  EXPECT_EQ(quantize({folder_ / "best.gguf", "Q4_0", "--effort", "best"}).exit_code, 0);
  EXPECT_THAT(quantize({folder_ / "best.gguf", "Q4_0", "--effort", "best"}).err,
              HasSubstr("of that of --effort normal"));
}

// verify's stages of the new file: what the flags have broken is said; what the old file had is not the command's
// fault.
TEST_F(CliQuantize, HoldsWhatItWroteAgainstVerify) {
  const std::vector<std::string> breaks = {out(), "Q8_0", "--override-kv", "llama.attention.head_count=int:7"};
  const ProgramResult broken = quantize(breaks);
  EXPECT_EQ(broken.exit_code, 5);
  EXPECT_THAT(broken.err, HasSubstr("the new file cannot be opened as a model: "));
  std::vector<std::string> unchecked = breaks;
  unchecked.push_back("--no-check");
  EXPECT_EQ(quantize(unchecked).exit_code, 0);

  const std::string foreign = folder_ / "foreign.gguf";
  const std::vector<std::string> edit = {"edit",  folder_ / "in.gguf",           "-o", foreign, "--force",
                                         "--set", "llama.attention.head_count=7"};
  ASSERT_EQ(test::run_program(ASSAY_PROGRAM, edit).exit_code, 0);
  const ProgramResult r = test::run_program(ASSAY_PROGRAM, {"quantize", foreign, out(), "Q8_0"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("no more than the old one, and is not checked: "));
}

TEST_F(CliQuantize, RefusesByName) {
  const struct {
    std::vector<std::string> arguments;
    const char* part;
  } cases[] = {
      {{out(), "Q4_9"}, "there is no type 'Q4_9': needs one of F32, F16"},
      {{out(), "IQ1_M"}, "IQ1_M is a format that assay neither reads nor writes"},
      {{out()}, "needs IN, OUT and TYPE"},
      {{out(), "IQ2_XXS"}, "would be IQ2_XXS, which is of no use without an importance matrix: needs --imatrix FILE"},
      {{out(), "Q2_K_S"}, "would be Q2_K, which is of no use without an importance matrix"},
      {{out(), "Q4_0", "--effort", "all"}, "--effort all: needs fast, normal or best"},
      {{out(), "Q4_0", "--tensor-type", "ffn"}, "needs REGEX=TYPE"},
      {{out(), "Q4_0", "--prune-layers", "1,x"}, "--prune-layers 1,x"},
      {{folder_ / "in.gguf", "Q4_0"}, "another name is needed"},
  };
  for (const auto& c : cases) {
    const ProgramResult r = quantize(c.arguments);
    EXPECT_EQ(r.exit_code, 2) << c.part;
    EXPECT_THAT(r.err, HasSubstr(c.part));
    EXPECT_EQ(r.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(CliQuantize, AQuantisedSourceIsTakenWithLeaveOnly) {
  ASSERT_EQ(quantize({folder_ / "small.gguf", "Q8_0"}).exit_code, 0);
  const std::string small = folder_ / "small.gguf";
  const ProgramResult refused = test::run_program(ASSAY_PROGRAM, {"quantize", small, out(), "Q4_0"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--allow-requantize"));
  const ProgramResult taken =
      test::run_program(ASSAY_PROGRAM, {"quantize", small, out(), "Q4_0", "--allow-requantize"});
  EXPECT_EQ(taken.exit_code, 0);
  EXPECT_THAT(taken.err, HasSubstr("the source is quantised already (Q8_0)"));
}

TEST(CliConvert, RefusesByName) {
  const test::TempFolder folder;
  const auto convert = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "convert");
    return test::run_program(ASSAY_PROGRAM, arguments);
  };
  EXPECT_EQ(convert({folder.path()}).exit_code, 2);
  EXPECT_NE(convert({folder / "absent", folder / "out.gguf"}).exit_code, 0);
  EXPECT_THAT(convert({folder.path(), folder / "out.gguf"}).err, HasSubstr("needs a config.json"));
  std::ofstream(folder / "config.json") << R"({"architectures": ["RwkvForCausalLM"]})";
  std::ofstream(folder / "model.safetensors", std::ios::binary) << std::string("\2\0\0\0\0\0\0\0{}", 10);
  const ProgramResult r = convert({folder.path(), folder / "out.gguf"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, HasSubstr("'RwkvForCausalLM' is not known; assay converts AfmoeForCausalLM, "));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
  EXPECT_THAT(convert({"--help"}).out, HasSubstr("Qwen2ForCausalLM"));
}

}  // namespace
}  // namespace assay
