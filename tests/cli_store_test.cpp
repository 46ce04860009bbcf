// Models by name, from outside: list, show, rm, and names where commands take a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "programs/program.h"
#include "support/temp_folder.h"
#include "support/tiny_model.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::ProgramOptions;
using test::ProgramResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CliStore : public testing::Test {
 protected:
  CliStore() { fs::create_directories(own("")); }
  fs::path own(const std::string& name) const { return home_ / "models/" / name; }
  void write_model(const std::string& name) const { test::write_tiny_model(own(name)); }
  ProgramResult assay(const std::vector<std::string>& arguments, const std::string& input = "") const {
    ProgramOptions options;
    options.environment = {{"HOME", home_.path().string()},
                           {"ASSAY_MODELS", own("").string()},
                           {"XDG_CACHE_HOME", ""},
                           {"HF_HOME", ""},
                           {"HF_HUB_CACHE", ""},
                           {"OLLAMA_MODELS", ""}};
    options.input = input;
    return test::run_program(ASSAY_PROGRAM, arguments, options);
  }
  test::TempFolder home_;
};

TEST_F(CliStore, ListAndShow) {
  EXPECT_THAT(assay({"list"}).err, HasSubstr("assay pull"));
  write_model("Tiny-F32.gguf");
  std::ofstream(own("bad\x1b[31m.gguf")) << "<html>";
  const ProgramResult list = assay({"list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(HasSubstr("Tiny-F32"), HasSubstr("F32"), HasSubstr("llama"), HasSubstr("assay"),
                              Not(HasSubstr("\x1b"))));
  EXPECT_THAT(list.err, AllOf(HasSubstr("no GGUF file"), Not(HasSubstr("\x1b"))));
  const json::value all = json::parse(assay({"list", "--json"}).out);
  EXPECT_EQ(all.at("models").as_array().size(), 2u);
  const json::value& tiny = all.at("models").as_array().front();
  EXPECT_EQ(tiny.at("name"), "Tiny-F32");
  EXPECT_EQ(std::string(tiny.at("path").as_string()), own("Tiny-F32.gguf").string());
  EXPECT_EQ(tiny.at("bytes"), static_cast<int64_t>(fs::file_size(own("Tiny-F32.gguf"))));

  const json::value shown = json::parse(assay({"show", "tiny", "--json"}).out);
  EXPECT_EQ(shown.at("architecture"), "llama");
  EXPECT_EQ(shown.at("context"), 512);
  EXPECT_EQ(shown.at("sha256").as_array().size(), 1u);
  EXPECT_GT(shown.at("needs").at("bytes").as_int64(), 0);
  EXPECT_THAT(assay({"show", own("Tiny-F32.gguf").string()}).out,
              HasSubstr("sha256        " + std::string(shown.at("sha256").at(0).as_string())));
}

TEST_F(CliStore, ANameIsAsGoodAsAPath) {
  write_model("Tiny-F32.gguf");
  const ProgramResult by_name = assay({"logits", "tiny", "--ids", "1,2,3", "--json"});
  const ProgramResult by_path = assay({"logits", own("Tiny-F32.gguf").string(), "--ids", "1,2,3", "--json"});
  EXPECT_EQ(by_name.exit_code, 0) << by_name.err;
  EXPECT_EQ(json::parse(by_name.out).at("logits_digest"), json::parse(by_path.out).at("logits_digest"));
  EXPECT_EQ(json::parse(assay({"inspect", "-m", "tiny", "--json"}).out).at("path"),
            json::string(own("Tiny-F32.gguf").string()));

  for (const std::vector<std::string>& call : {std::vector<std::string>{"run", "tinny", "-p", "x"},
                                               {"chat", "tinny"},
                                               {"tokenize", "tinny", "-p", "x"},
                                               {"logits", "tinny", "--ids", "1"},
                                               {"inspect", "tinny"},
                                               {"verify", "tinny"},
                                               {"bench", "tinny"},
                                               {"trace", "tinny", "--ids", "1"},
                                               {"perplexity", "tinny", "-p", "x"}}) {
    const ProgramResult unknown = assay(call);
    EXPECT_EQ(unknown.exit_code, 1) << call[0] << unknown.err;
    EXPECT_THAT(unknown.err, AllOf(HasSubstr("tinny: there is no such file"), HasSubstr("nearest: Tiny-F32"),
                                   HasSubstr("assay pull")))
        << call[0];
  }
  EXPECT_THAT(assay({"tiny", "-p", "x"}).err,
              HasSubstr("there is no command 'tiny': assay run tiny -p TEXT asks that model"));
  EXPECT_THAT(assay({"run", own("").string(), "-p", "x"}).err,
              AllOf(HasSubstr("is a folder"), HasSubstr("assay convert")));
  write_model("Tiny-two.gguf");
  const ProgramResult ambiguous = assay({"inspect", "tiny"});
  EXPECT_EQ(ambiguous.exit_code, 2);
  EXPECT_THAT(ambiguous.err, AllOf(HasSubstr("Tiny-F32"), HasSubstr("Tiny-two")));
}

TEST_F(CliStore, AFileIsChangedInItsPlaceByItsPathAlone) {
  write_model("Tiny-F32.gguf");
  const ProgramResult by_name = assay({"edit", "tiny", "--in-place", "--set", "general.name=str:x"});
  EXPECT_EQ(by_name.exit_code, 1);
  EXPECT_THAT(by_name.err, HasSubstr("needs a path, not a name"));
  EXPECT_EQ(assay({"edit", own("Tiny-F32.gguf").string(), "--in-place", "--set", "general.name=str:x"}).exit_code, 0);
}

TEST_F(CliStore, HelpTeaches) {
  for (const char* command : {"pull", "list", "show", "rm", "doctor"}) {
    const ProgramResult help = assay({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  assay " + std::string(command)));
    EXPECT_THAT(assay({"--help"}).out, HasSubstr("\n  " + std::string(command)));
  }
  EXPECT_THAT(assay({"pull", "--help"}).out, HasSubstr("bartowski/SmolLM2-135M-Instruct-GGUF"));
}

TEST_F(CliStore, TheDoctorReports) {
  write_model("Tiny-F32.gguf");
  std::ofstream(own("cut.gguf")) << "GGUF";
  const ProgramResult text = assay({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("Tiny-F32: llama F32"), HasSubstr("unusable_file: cut: "), HasSubstr("bandwidth ")));
  const json::value report = json::parse(assay({"doctor", "--json"}).out);
  EXPECT_EQ(report.at("models").as_array().size(), 2u);
  const json::value& machine = report.at("machine");
  EXPECT_GT(machine.at("memory_bytes").as_int64(), 0);
  // Both read at once: what files' pages hold is free for the processor too.
  EXPECT_GT(machine.at("devices").at(0).at("memory_free").as_int64() * 2, machine.at("available_bytes").as_int64());
}

TEST_F(CliStore, RmNeedsAYesAndAWholeName) {
  write_model("Tiny-F32.gguf");
  EXPECT_EQ(assay({"rm", "Tiny-F32"}, "y\n").exit_code, 2);  // no terminal to ask on
  EXPECT_EQ(assay({"rm", "-y", "Tiny"}).exit_code, 1);
  EXPECT_EQ(assay({"rm", "-y", "Tiny-F32", "other"}).exit_code, 1);
  EXPECT_EQ(assay({"rm"}).exit_code, 2);
  EXPECT_TRUE(fs::exists(own("Tiny-F32.gguf")));
  EXPECT_EQ(assay({"rm", "-y", "Tiny-F32"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(own("Tiny-F32.gguf")));
}

}  // namespace
}  // namespace assay
