// verify passes on every family's small random model, and fails where one is broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/verify.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

VerifyReport quick(const std::string& path) {
  VerifyOptions options;
  options.quick = true;
  options.context.n_threads = 1;
  return verify_model(path, options);
}

TEST(VerifyGoldens, EveryFamilyPasses) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/qwen2.gguf"));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared("goldens/arch"))) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  int n_passed = 0;
  for (const std::filesystem::path& path : files) {
    SCOPED_TRACE(path.filename());
    try {
      const VerifyReport report = quick(path.string());
      EXPECT_TRUE(report.passed()) << report.to_text();
      n_passed += report.passed() ? 1 : 0;
    } catch (const Error& error) {  // a family that this build refuses by name
      EXPECT_EQ(error.code, Errc::unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("general.architecture"), std::string::npos) << error.what();
    }
  }
  EXPECT_GE(n_passed, 70);
}

TEST(VerifyGoldens, ABrokenOneFails) {
  for (const char* name : {"mixtral", "mamba2", "deepseek2"}) {
    const auto path = test::shared(std::string("goldens/arch/") + name + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    const gguf::File file = gguf::File::open(path);
    const std::string last(file.tensors().back().name);
    const test::TempFolder folder;
    test::edited_copy(file, {}, [&](std::string_view tensor, test::Bytes& data) {
      if (tensor == last) std::ranges::fill(data, std::byte{0});
    }).write(folder / "broken.gguf");
    const VerifyReport report = quick((folder / "broken.gguf").string());
    EXPECT_FALSE(report.passed()) << name << ": " << last << " was never written\n" << report.to_text();
  }
}

}  // namespace
}  // namespace assay
