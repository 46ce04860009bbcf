// The stages from the file to dequantisation, and the detokenizer: silent on the right engine, and
// each sees the faults of its own part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "assay/error.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "verify/stages/stages.h"

namespace assay::verify {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

ContextOptions one_thread() {
  ContextOptions options;
  options.n_threads = 1;
  return options;
}

class StagesOfAModel : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSAY_REQUIRE_FILE(test::smollm2());
    subject_ = own_subject(Model::load(test::smollm2().string()), one_thread());
  }
  static void expect_failure(const VerifyStage& stage, const std::string& text) {
    EXPECT_EQ(stage.verdict, Verdict::fail) << stage.to_text();
    EXPECT_THAT(stage.to_text(), HasSubstr(text));
  }
  static void expect_pass(const VerifyStage& stage) { EXPECT_EQ(stage.verdict, Verdict::pass) << stage.to_text(); }

  base::ThreadPool pool_{1};
  StageRun run_{pool_, true};
  Subject subject_;
};

TEST_F(StagesOfAModel, TheRightEnginePasses) {
  expect_pass(check_file(subject_, run_));
  expect_pass(check_metadata(subject_, run_));
  expect_pass(check_tokenizer(subject_, run_));
  expect_pass(check_template(subject_, run_));
  expect_pass(check_dequantisation(subject_, run_));
}

// No piece is the blank alone: nothing can write a blank, which is the file's doing and changes no id.
TEST_F(StagesOfAModel, AVocabularyWithoutBlanksIsSaidNotFailed) {
  const Subject without = own_subject(Model::load(test::shared("goldens/arch/qwen3.gguf").string()), one_thread());
  const VerifyStage stage = check_tokenizer(without, run_);
  EXPECT_EQ(stage.verdict, Verdict::warn) << stage.to_text();
  EXPECT_THAT(stage.to_text(), HasSubstr("no token is the mark of a blank"));
}

// SentencePiece's rules: a text that is not normalised by them has other ids.
TEST_F(StagesOfAModel, AUnigramVocabularyIsHeldAgainstASecondEncoder) {
  Subject unigram = own_subject(Model::load(test::shared("goldens/arch/xlm-roberta.gguf").string()), one_thread());
  expect_pass(check_tokenizer(unigram, run_));
  const auto right = unigram.encode;
  unigram.encode = [right](std::string_view text, const EncodeOptions& options) {
    std::string changed(text);
    if (const size_t at = changed.find("\uFB01"); at != std::string::npos) changed.replace(at, 3, "\u16A0");
    return right(changed, options);
  };
  expect_failure(check_tokenizer(unigram, run_), "needs");
}

TEST_F(StagesOfAModel, DequantisationSeesWrongNibbles) {
  const auto right = subject_.decode_row;
  subject_.decode_row = [right](const quant::Format& format, const std::byte* row, int64_t n, float* out) {
    right(format, row, n, out);
    if (format.dtype == tensor::DType::Q4_1) std::swap(out[1], out[17]);
  };
  expect_failure(check_dequantisation(subject_, run_), "blk.0.attn_k.weight (Q4_1), row 0");
  expect_failure(check_dequantisation(subject_, run_), "element 1");
}

TEST_F(StagesOfAModel, TokenizerSeesAWrongPieceAndALostSpace) {
  const auto right = subject_.encode;
  subject_.encode = [right](std::string_view text, const EncodeOptions& options) {
    std::string changed(text);
    if (const size_t at = changed.find("  "); at != std::string::npos) changed.erase(at, 1);
    return right(changed, options);
  };
  const VerifyStage stage = check_tokenizer(subject_, run_);
  expect_failure(stage, "'a  b'");
  EXPECT_THAT(stage.details, Contains(HasSubstr("needs")));
}

TEST_F(StagesOfAModel, TokenizerSeesSpecialTokensInPlainText) {
  const auto right = subject_.encode;
  subject_.encode = [right](std::string_view text, EncodeOptions options) {
    options.parse_special = true;
    return right(text, options);
  };
  expect_failure(check_tokenizer(subject_, run_), "a user's text can write it");
}

TEST_F(StagesOfAModel, TokenizerSeesBosAndEndsThatTheFileDoesNotSay) {
  const auto right = subject_.encode;
  const TokenId bos = *subject_.model->tokenizer()->bos();
  subject_.encode = [right, bos](std::string_view text, const EncodeOptions& options) {
    std::vector<TokenId> ids = right(text, options);
    if (!options.add_bos) ids.insert(ids.begin(), bos);
    return ids;
  };
  expect_failure(check_tokenizer(subject_, run_), "BOS and EOS");
  subject_.encode = right;
  subject_.is_end_of_generation = [](TokenId) { return false; };
  expect_failure(check_tokenizer(subject_, run_), "does not end a generation");
  expect_failure(check_template(subject_, run_), "does not end a generation");
}

TEST_F(StagesOfAModel, TokenizerSeesADecoderThatDropsBytes) {
  const auto right = subject_.decode;
  subject_.decode = [right](std::span<const TokenId> ids, bool special) {
    std::string text = right(ids, special);
    return text.starts_with(' ') ? text.substr(1) : text;
  };
  expect_failure(check_tokenizer(subject_, run_), "comes back as");
}

TEST_F(StagesOfAModel, TemplateSeesBosTwiceAndOtherTexts) {
  const auto right = subject_.chat_prompt;
  const TokenId bos = *subject_.model->tokenizer()->bos();
  subject_.chat_prompt = [right, bos](const std::vector<Message>& messages) {
    std::vector<TokenId> ids = right(messages);
    ids.insert(ids.begin(), bos);
    return ids;
  };
  expect_failure(check_template(subject_, run_), "BOS (1) twice");
  subject_.chat_prompt = right;
  const auto render = subject_.render;
  subject_.render = [render](TemplateInput input) {
    input.add_generation_prompt = false;
    return render(input);
  };
  expect_failure(check_template(subject_, run_), "renders to another text");
}

TEST_F(StagesOfAModel, TemplateSeesUsersWhoWriteControlTokens) {
  subject_.chat_prompt = [this](const std::vector<Message>& messages) {
    std::string text;
    for (const Message& m : messages) text += "<|im_start|>" + m.role + "\n" + m.content + "<|im_end|>\n";
    return subject_.encode(text, {.parse_special = true, .add_bos = false, .add_eos = false});
  };
  expect_failure(check_template(subject_, run_), "adds 1 control token to the prompt");
}

TEST_F(StagesOfAModel, AnErrorOfTheSubjectIsAFinding) {
  subject_.decode_row = [](const quant::Format&, const std::byte*, int64_t, float*) {
    throw Error(Errc::unsupported, "no such format here");
  };
  expect_failure(check_dequantisation(subject_, run_), "no such format here");
}

// Faults of the file itself, in a small one.
class StagesOfAFile : public ::testing::Test {
 protected:
  VerifyStage check(const std::function<void(std::string_view, test::Bytes&)>& change,
                    tensor::DType dtype = tensor::DType::Q4_0) {
    test::TinyLlama spec;
    spec.dtype = dtype;
    const test::Bytes bytes = test::TinyLlamaWriter(spec).file().bytes();
    const test::TempFolder folder;
    test::edited_copy(gguf::File::parse(bytes), {}, change).write(folder / "m.gguf");
    const Subject subject = own_subject(Model::load((folder / "m.gguf").string(), {.tokenizer = false}), one_thread());
    base::ThreadPool pool(1);
    return check_file(subject, {pool});
  }
};

TEST_F(StagesOfAFile, EveryFormatIsFine) {
  for (const quant::Format& format : quant::all_formats()) {
    const VerifyStage stage = check({}, format.dtype);
    EXPECT_EQ(stage.verdict, Verdict::pass) << tensor::traits(format.dtype).name << "\n" << stage.to_text();
  }
}

TEST_F(StagesOfAFile, AScaleThatIsNoNumber) {
  const VerifyStage stage = check([](std::string_view name, test::Bytes& data) {
    if (name == "blk.1.ffn_up.weight") data[18 * (8 * 3 + 5) + 1] = std::byte{0x7E};  // row 3, block 5 of Q4_0: a NaN
  });
  EXPECT_EQ(stage.verdict, Verdict::fail);
  EXPECT_THAT(stage.to_text(), HasSubstr("blk.1.ffn_up.weight (Q4_0): 1 of 4096 blocks"));
  EXPECT_THAT(stage.to_text(), HasSubstr("row 3, block 5"));
}

TEST_F(StagesOfAFile, DataOfABigEndianMachine) {
  for (const auto& [dtype, width] :
       {std::pair(tensor::DType::F32, 4), std::pair(tensor::DType::F16, 2), std::pair(tensor::DType::BF16, 2)}) {
    const VerifyStage stage = check(
        [n = static_cast<std::ptrdiff_t>(width)](std::string_view, test::Bytes& data) {
          for (auto at = data.begin(); at != data.end(); at += n) std::reverse(at, at + n);
        },
        dtype);
    EXPECT_EQ(stage.verdict, Verdict::fail) << tensor::traits(dtype).name;
    EXPECT_THAT(stage.to_text(), HasSubstr("big-endian"));
  }
}

TEST_F(StagesOfAFile, ATailThatWasNeverWritten) {
  const VerifyStage stage = check([](std::string_view name, test::Bytes& data) {
    if (name == "output.weight")
      std::fill(data.begin() + static_cast<std::ptrdiff_t>(data.size() / 4), data.end(), std::byte{0});
  });
  EXPECT_EQ(stage.verdict, Verdict::fail);
  EXPECT_THAT(stage.to_text(), HasSubstr("was not written to its end"));
}

TEST_F(StagesOfAFile, WeightsOfAbsurdSizeAreWarnedOf) {
  const VerifyStage stage = check(
      [](std::string_view name, test::Bytes& data) {
        if (name != "blk.0.attn_q.weight") return;
        for (size_t at = 0; at < data.size(); at += 4) {
          float x;
          std::memcpy(&x, &data[at], 4);
          x *= 1e6f;
          std::memcpy(&data[at], &x, 4);
        }
      },
      tensor::DType::F32);
  EXPECT_EQ(stage.verdict, Verdict::warn);
  EXPECT_THAT(stage.to_text(), HasSubstr("blk.0.attn_q.weight (F32): the root mean square"));
}

}  // namespace
}  // namespace assay::verify
