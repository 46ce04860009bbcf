// B91: a model's file that is cut while a context uses it.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

#include "assay/context.h"
#include "assay/error.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

TEST(CutFile, B91_IsAnErrorBeforeTheNextRun) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/tiny/llama.gguf"));
  const test::TempFolder folder;
  const auto path = folder / "m.gguf";
  std::filesystem::copy_file(test::shared("goldens/tiny/llama.gguf"), path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  ContextOptions options;
  options.n_threads = 1;
  options.n_ctx = 16;
  Context context(Model::load(path.string(), {.tokenizer = false}), options);
  const std::array<TokenId, 2> tokens = {5, 6};
  EXPECT_EQ(context.decode(tokens), 2);
  std::filesystem::resize_file(path, 4096);
  try {
    context.decode(tokens);
    FAIL() << "the run read a file that is not there any more";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::io);
    EXPECT_NE(std::string(error.what()).find("was cut from 617888 to 4096 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(context.n_past(), 2);
}

}  // namespace
}  // namespace assay
