// The program from outside, as a user meets it: flags, pipes, files that are missing or bad, exit
// codes, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "programs/assay_program.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::assay;
using test::ProgramOptions;
using test::ProgramResult;
using testing::HasSubstr;
using testing::StartsWith;

ProgramOptions input(std::string text) {
  ProgramOptions options;
  options.input = std::move(text);
  return options;
}

// One line on standard error that begins with the program's name, nothing on standard output.
void expect_refusal(const ProgramResult& r, int exit_code, const std::string& part) {
  EXPECT_EQ(r.exit_code, exit_code) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(r.err, StartsWith("assay: "));
  EXPECT_THAT(r.err, HasSubstr(part));
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
}

const std::vector<std::string> kCommands = {
    "run",        "chat",    "batch", "tokenize", "detokenize", "template", "logits", "embed", "inspect", "bench",
    "perplexity", "devices", "trace", "verify",   "imatrix",    "diff",     "edit",   "split", "merge",   "quantize"};

TEST(Cli, HelpTeaches) {
  const ProgramResult all = assay({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const std::string& command : kCommands) {
    EXPECT_THAT(all.out, HasSubstr("\n  " + command));
    const ProgramResult one = assay({command, "--help"});
    EXPECT_EQ(one.exit_code, 0);
    EXPECT_EQ(one.err, "");
    EXPECT_THAT(one.out, HasSubstr("Examples:\n  "));
    EXPECT_THAT(one.out, HasSubstr("ASSAY_"));
    EXPECT_EQ(assay({"help", command}).out, one.out);
  }
  EXPECT_THAT(assay({"run", "-h"}).out, HasSubstr("-ub,--ubatch-size N"));
  EXPECT_THAT(assay({"--version"}).out, StartsWith("assay "));
}

TEST(Cli, WrongCallsEndWithTwo) {
  EXPECT_EQ(assay({}).exit_code, 2);
  expect_refusal(assay({"sing"}), 2, "there is no command 'sing'");
  expect_refusal(assay({"run"}), 2, "no model given");
  expect_refusal(assay({"run", "m.gguf", "--frobnicate"}), 2, "there is no flag --frobnicate");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "-n", "many"}), 2, "-n many: needs a whole number");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "-t"}), 2, "-t needs a value");
  expect_refusal(assay({"run", "m.gguf", "-m", "other.gguf", "-p", "x"}), 2, "-m gives the MODEL");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "--numerics", "fuzzy"}), 2, "fuzzy");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "--activations", "9"}), 2, "needs 15, 8 or 16");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "-ctk", "q9"}), 2, "q9");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "--backend", "abacus"}), 2, "abacus");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "--backend", "hybrid-f32", "--numerics", "exact"}), 2,
                 "hybrid-f32");
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "-f", "y"}), 2, "exclude");
  expect_refusal(assay({"logits", "m.gguf"}), 2, "no prompt");
  expect_refusal(assay({"trace", "m.gguf"}), 2, "no prompt");
  for (const char* range : {"x", "3-", "-1", "5-2", "1-2-3", "99999999999", ""}) {
    expect_refusal(assay({"trace", "m.gguf", "-p", "x", "--layers", range}), 2, "--layers");
  }
  for (const char* flag : {"-p", "-n", "-d", "-npl", "-pg"}) {
    for (const char* counts : {"5,x", "", "-1", "1,", "99999999999"}) {
      expect_refusal(assay({"bench", "m.gguf", flag, counts}), 2, flag);
    }
  }
  expect_refusal(assay({"bench", "m.gguf", "-pg", "5"}), 2, "needs two counts");
  expect_refusal(assay({"bench", "m.gguf", "-p", "0", "-n", "0"}), 2, "no test is left");
  expect_refusal(assay({"bench", "m.gguf", "-npl", "0"}), 2, "1 or more");
  expect_refusal(assay({"bench", "m.gguf", "-r", "0"}), 2, "-r 0");
  expect_refusal(assay({"bench", "m.gguf", "-o", "xml"}), 2, "needs md, json, jsonl, csv or sql");
  expect_refusal(assay({"bench", "m.gguf", "--load", "--profile"}), 2, "exclude");
  expect_refusal(assay({"template", "m.gguf"}), 2, "--messages");
  expect_refusal(assay({"perplexity", "m.gguf", "-p", "x", "-f", "y"}), 2, "exclude");
  expect_refusal(assay({"perplexity", "m.gguf", "-p", "x", "--chunks", "0"}), 2, "--chunks 0");
}

TEST(Cli, CudaIsRefusedByName) { expect_refusal(assay({"run", "m.gguf", "-p", "x", "--backend", "cuda"}), 1, "CUDA"); }

TEST(Cli, VulkanIsRefusedByName) {
  if (!json::parse(assay({"devices", "--json"}).out).as_object().contains("no_vulkan"))
    GTEST_SKIP() << "a Vulkan device is here";
  expect_refusal(assay({"run", "m.gguf", "-p", "x", "--backend", "vulkan"}), 1, "Vulkan");
}

TEST(Cli, DevicesNameTheProcessorAndTellWhyThereIsNoGpu) {
  const json::object found = json::parse(assay({"devices", "--json"}).out).as_object();
  const json::array& devices = found.at("devices").as_array();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].at("backend"), "cpu");
  EXPECT_GT(devices[0].at("memory").to_number<int64_t>(), 0);
  for (const std::string backend : {"cuda", "vulkan"}) {
    const bool is_there = std::any_of(devices.begin(), devices.end(),
                                      [&](const json::value& d) { return d.at("backend").as_string() == backend; });
    EXPECT_NE(is_there, found.contains("no_" + backend)) << backend;
  }
  EXPECT_THAT(assay({"devices"}).out, StartsWith("cpu "));
}

TEST(Cli, MissingAndBadFilesSaySo) {
  const test::TempFolder folder;
  std::ofstream(folder / "bad.gguf") << "not a model at all";
  for (const std::vector<std::string>& rest : {std::vector<std::string>{"run", "-p", "x"},
                                               {"tokenize", "-p", "x"},
                                               {"logits", "--ids", "1"},
                                               {"bench"},
                                               {"perplexity", "-p", "x"},
                                               {"inspect"}}) {
    std::vector<std::string> missing = rest, bad = rest;
    missing.insert(missing.end(), {"-m", (folder / "none.gguf").string()});
    bad.insert(bad.end(), {"-m", (folder / "bad.gguf").string()});
    expect_refusal(assay(missing), 1, "none.gguf: there is no such file");
    expect_refusal(assay(bad), 3, "bad.gguf");
  }
}

TEST(Cli, TextThatIsNotUtf8IsRefused) {
  expect_refusal(assay({"run", "m.gguf", "-p", "caf\xE9"}), 2, "byte 0xE9 at offset 3");
}

// A small model without a vocabulary.
class CliTiny : public ::testing::Test {
 protected:
  CliTiny() { test::TinyLlamaWriter({}).file().write(path_); }
  json::object logits(std::vector<std::string> more, const ProgramOptions& options = {}) {
    std::vector<std::string> arguments = {"logits", path_, "--ids", "1,2,3,4,5,6,7,8,9,10,11", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult r = assay(arguments, options);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.exit_code == 0 ? json::parse(r.out).as_object() : json::object();
  }
  test::TempFolder folder_;
  std::string path_ = (folder_ / "tiny.gguf").string();
};

TEST_F(CliTiny, LogitsHaveTheirKeysAndDependOnNumericsAlone) {
  const json::object plain = logits({});
  for (const char* key : {"ids", "top", "logsumexp", "mean_nll", "logits_digest", "kv_digest", "numerics"})
    EXPECT_TRUE(plain.contains(key)) << key;
  EXPECT_EQ(plain.at("top").as_array().size(), 10u);
  EXPECT_EQ(plain.at("numerics").at("version").as_int64(), 1);
  EXPECT_EQ(plain.at("numerics").at("mode").as_string(), "exact");
  for (const std::vector<std::string>& same :
       {std::vector<std::string>{"-t", "3"}, {"-ub", "1"}, {"-ub", "4", "-t", "2"}, {"--kernels", "reference"}}) {
    EXPECT_EQ(logits(same).at("logits_digest"), plain.at("logits_digest")) << same[0];
    EXPECT_EQ(logits(same).at("kv_digest"), plain.at("kv_digest")) << same[0];
  }
  EXPECT_EQ(logits({"--backend", "hybrid-f32"}).at("logits_digest"), logits({"--numerics", "f32"}).at("logits_digest"));
  EXPECT_NE(logits({"-ctk", "f32", "-ctv", "f32"}).at("kv_digest"), plain.at("kv_digest"));
  EXPECT_EQ(logits({"--top", "3"}).at("top").as_array().size(), 3u);
}

TEST_F(CliTiny, EmbedGivesALineATextWithTheBitsItHasAlone) {
  const auto embed = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"embed", path_, "--json", "--pooling", "mean"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult r = assay(arguments);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    std::vector<json::object> lines;
    std::istringstream out(r.out);
    for (std::string line; std::getline(out, line);) lines.push_back(json::parse(line).as_object());
    return lines;
  };
  const auto alone = embed({"--ids", "1,2,3"}), other = embed({"--ids", "[7]"});
  ASSERT_EQ(alone.size(), 1u);
  for (const char* key : {"embedding", "ids", "pooling", "normalized", "numerics"})
    EXPECT_TRUE(alone[0].contains(key)) << key;
  EXPECT_EQ(alone[0].at("embedding").as_array().size(), 256u);
  EXPECT_EQ(alone[0].at("pooling"), "mean");
  EXPECT_EQ(alone[0].at("normalized"), true);
  EXPECT_EQ(alone[0].at("numerics").at("cache_type_k"), "f32");
  const auto both = embed({"--ids", "1,2,3", "--ids", "7", "-t", "2", "-ub", "2", "--kernels", "reference"});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].at("embedding"), alone[0].at("embedding"));
  EXPECT_EQ(both[1].at("embedding"), other[0].at("embedding"));
  EXPECT_NE(embed({"--ids", "1,2,3", "--no-normalize"})[0].at("embedding"), alone[0].at("embedding"));
  expect_refusal(assay({"embed", path_, "--ids", "1"}), 2, "--pooling");
  expect_refusal(assay({"embed", path_, "--ids", "1", "--pooling", "max"}), 2, "max");
  expect_refusal(assay({"embed", path_, "--ids", "96", "--pooling", "cls"}), 2, "96");
  expect_refusal(assay({"embed", path_, "--ids", "1,2", "-c", "1", "--pooling", "cls"}), 2, "2 tokens do not fit");
}

TEST_F(CliTiny, TheEnvironmentSetsFlagsAndTheCommandLineWins) {
  ProgramOptions options;
  options.environment = {{"ASSAY_NUMERICS", "f32"}, {"ASSAY_TOP", "4"}, {"ASSAY_KERNELS", "reference"}};
  const json::object r = logits({}, options);
  EXPECT_EQ(r.at("numerics").at("mode").as_string(), "f32");
  EXPECT_EQ(r.at("numerics").at("kernels").as_string(), "reference");
  EXPECT_EQ(r.at("top").as_array().size(), 4u);
  options.environment["ASSAY_MODEL"] = "another.gguf";  // MODEL outranks it
  EXPECT_EQ(logits({"--numerics", "exact"}, options).at("numerics").at("mode").as_string(), "exact");
}

TEST_F(CliTiny, KernelsMayNameARowOfTheirTable) {
  expect_refusal(assay({"logits", path_, "--ids", "1", "--kernels", "sse2:vector"}), 2, "sse2:vector: needs auto");
  expect_refusal(assay({"logits", path_, "--ids", "1", "--kernels", "auto:vector"}), 2, "the name of its set");
  expect_refusal(assay({"logits", path_, "--ids", "1", "--kernels", "reference:vector"}), 2, "has no rows");
#if defined(__x86_64__)
  expect_refusal(assay({"plan", path_, "--kernels", "avx2:vectors"}), 2, "skinny of two");
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no AVX2 here";
  ProgramOptions options;
  options.environment = {{"ASSAY_KERNELS", "avx2:floats"}};
  const json::object r = logits({}, options);
  EXPECT_EQ(r.at("numerics").at("kernels").as_string(), "avx2:floats");
  EXPECT_EQ(r.at("logits_digest"), logits({}).at("logits_digest"));
  EXPECT_NE(assay({"plan", path_, "--kernels", "avx2:floats"}).out.find(" avx2 floats\n"), std::string::npos);
#endif
}

TEST_F(CliTiny, IdsComeInEveryForm) {
  std::ofstream(folder_ / "ids.json") << R"({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]})";
  const ProgramResult r = assay({"logits", path_, "--ids-file", (folder_ / "ids.json").string(), "--json"});
  EXPECT_EQ(json::parse(r.out).at("logits_digest"), logits({}).at("logits_digest"));
  expect_refusal(assay({"logits", path_, "--json", "--ids", "1,x"}), 2, "'x'");
  expect_refusal(assay({"logits", path_, "--json", "--ids", "[1,"}), 2, "JSON");
  expect_refusal(assay({"logits", path_, "--json", "--ids", "96"}), 2, "96");
  expect_refusal(assay({"logits", path_, "--json", "--ids", "-1"}), 2, "-1");
  expect_refusal(assay({"logits", path_, "--json", "--ids", ""}), 2, "");
}

TEST_F(CliTiny, TraceShowsOpsAndKeepsTheDigests) {
  const std::vector<std::string> call = {"trace", path_, "--ids", "1,2,3,4,5,6,7,8,9,10,11"};
  const auto trace = [&](std::vector<std::string> more) {
    more.insert(more.begin(), call.begin(), call.end());
    return assay(more);
  };
  const std::string dump = (folder_ / "tiny.dump").string();
  const ProgramResult r = trace({"--json", "--histogram", "--dump", dump, "--positions", "2-4"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::object whole = json::parse(r.out).as_object();
  const json::object plain = logits({});
  for (const char* key : {"ids", "logits_digest", "kv_digest", "numerics"})
    EXPECT_EQ(whole.at(key), plain.at(key)) << key;
  const json::object& last = whole.at("ops").as_array().back().as_object();
  EXPECT_EQ(last.at("op").as_string(), "output");
  EXPECT_EQ(last.at("kind").as_string(), "linear");
  EXPECT_EQ(last.at("layer").as_int64(), -1);
  EXPECT_EQ(last.at("n_rows").as_int64(), 3);
  EXPECT_EQ(last.at("width").as_int64(), 96);
  EXPECT_EQ(last.at("first").as_array().size(), 4u);
  EXPECT_EQ(last.at("histogram").as_array().size(), 16u);
  for (const char* key : {"mean", "rms", "smallest", "largest"}) EXPECT_TRUE(last.at(key).is_double()) << key;
  for (const char* key : {"n_nan", "n_infinite", "n_zero"}) EXPECT_EQ(last.at(key).as_int64(), 0) << key;
  EXPECT_GT(std::filesystem::file_size(dump), 11u * 256 * 4 * 20);
  const ProgramResult table = trace({"--ops", ".*attn_q|output", "--layers", "1"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("\nblk.1.attn_q  11x256 "));
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 5) << table.out;
  expect_refusal(trace({"--ops", "("}), 2, "missing closing parenthesis");
  expect_refusal(trace({"--ops", "attn_q"}), 2, "matches none");
  expect_refusal(trace({"--layers", "0-2"}), 2, "layers: needs a range within 0 to 1");
  expect_refusal(trace({"--positions", "11"}), 2, "positions: needs a range within 0 to 10");
  expect_refusal(trace({"--dump", (folder_ / "no/folder").string()}), 1, "No such file");
}

TEST_F(CliTiny, BenchSpeaksLlamaBenchsKeys) {
  const ProgramResult r = assay({"bench", path_, "-p", "16,32", "-n", "8", "-d", "0,4", "-r", "2", "-o", "json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::value all = json::parse(r.out);
  const json::array& tests = all.as_array();
  ASSERT_EQ(tests.size(), 6u);
  for (const json::value& t : tests) {
    for (const char* key :
         {"build_commit",   "build_number", "cpu_info",   "gpu_info",        "backends",
          "model_filename", "model_type",   "model_size", "model_n_params",  "n_batch",
          "n_ubatch",       "n_threads",    "type_k",     "type_v",          "n_gpu_layers",
          "n_prompt",       "n_gen",        "n_depth",    "test_time",       "avg_ns",
          "stddev_ns",      "avg_ts",       "stddev_ts",  "bytes_per_token", "multiply_adds_per_token",
          "share_of_peak",  "peak_memory"}) {
      EXPECT_TRUE(t.as_object().contains(key)) << key;
    }
    EXPECT_EQ(t.at("samples_ts").as_array().size(), 2u);
    EXPECT_EQ(t.at("split_mode").as_string(), "layer");
    EXPECT_EQ(t.at("devices").as_string(), "auto");
    EXPECT_EQ(t.at("tensor_split").as_string(), "0.00");
    EXPECT_GT(t.at("avg_ts").to_number<double>(), 0);
    EXPECT_GT(t.at("bytes_per_token").to_number<double>(), 0);
    EXPECT_GT(t.at("limits").at("read_bandwidth").to_number<double>(), 0);
    EXPECT_GT(t.at("share_of_bandwidth").to_number<double>(), 0);
  }
  EXPECT_EQ(tests[1].at("n_prompt").as_int64(), 32);
  EXPECT_EQ(tests[2].at("n_gen").as_int64(), 8);
  EXPECT_EQ(tests[5].at("n_depth").as_int64(), 4);
  const ProgramResult table =
      assay({"bench", path_, "-p", "8", "-n", "4", "-d", "3", "-npl", "2", "-r", "1", "--no-limits"});
  EXPECT_THAT(table.out, HasSubstr("| tg4 @ d3 x 2 |"));
}

TEST_F(CliTiny, BenchTellsWhereTheTimeGoes) {
  const std::vector<std::string> call = {"bench", path_, "-p", "8", "-n", "1", "-d", "3", "-r", "1", "--profile"};
  const ProgramResult table = assay(call);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("8 tokens after 3: "));
  EXPECT_THAT(table.out, HasSubstr("1 token after 3: "));
  EXPECT_THAT(table.out, HasSubstr("ffn_gate + ffn_up"));
  std::vector<std::string> as_json = call;
  as_json.insert(as_json.end(), {"-o", "json", "--no-limits"});
  const json::value runs = json::parse(assay(as_json).out);
  ASSERT_EQ(runs.as_array().size(), 2u);
  double share = 0;
  for (const json::value& row : runs.at(0).at("rows").as_array()) share += row.at("share").to_number<double>();
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_TRUE(runs.at(0).at("rows").at(0).at("share_of_peak").is_null());  // not measured, so not known
}

TEST(Cli, BenchTimesTheStart) {
  const std::string model = test::shared("goldens/tiny/llama.gguf").string();
  ASSAY_REQUIRE_FILE(model);
  const json::object start = json::parse(assay({"bench", model, "--load", "-r", "3", "-o", "json"}).out).as_object();
  EXPECT_EQ(start.at("n_tokens").as_int64(), 5);
  EXPECT_EQ(start.at("samples").at("total_ms").as_array().size(), 3u);
  for (const char* key : {"open_ms", "plan_ms", "vocabulary_ms", "context_ms", "first_token_ms", "total_ms"}) {
    EXPECT_GT(start.at(key).to_number<double>(), 0) << key;
  }
  EXPECT_THAT(assay({"bench", model, "--load", "-r", "1"}).out, HasSubstr("first token after 5"));
}

// A tiny model with a vocabulary of bytes.
class CliPerplexity : public ::testing::Test {
 protected:
  const std::string model_ = test::shared("goldens/tiny/llama.gguf").string();
  const std::string text_ = "The sea is vast, and it never ends.";  // 52 tokens
};

TEST_F(CliPerplexity, JsonHasTheFiguresAndTheTokens) {
  ASSAY_REQUIRE_FILE(model_);
  const ProgramResult r = assay({"perplexity", model_, "-c", "10", "--chunks", "4", "--against", "oracle", "--numerics",
                                 "f32", "--json", "--per-token"},
                                input(text_ + "\n"));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::value v = json::parse(r.out);
  EXPECT_EQ(v.at("n_chunks").as_int64(), 4);
  EXPECT_EQ(v.at("n_scored").as_int64(), 16);
  const json::array& tokens = v.at("tokens").as_array();
  ASSERT_EQ(tokens.size(), 16u);
  double sum = 0, base = 0, divergence = 0;
  for (const json::value& token : tokens) {
    sum += token.at("nll").to_number<double>();
    base += token.at("base_nll").to_number<double>();
    divergence += token.at("kl_divergence").to_number<double>();
  }
  EXPECT_EQ(tokens[0].at("index").as_int64(), 6);
  EXPECT_NEAR(v.at("perplexity").to_number<double>(), std::exp(sum / 16), 1e-8);
  EXPECT_NEAR(v.at("base").at("perplexity").to_number<double>(), std::exp(base / 16), 1e-8);
  EXPECT_NEAR(v.at("kl_divergence").at("mean").to_number<double>(), divergence / 16, 1e-15);
  EXPECT_EQ(v.at("numerics").at("mode").as_string(), "f32");
  EXPECT_EQ(v.at("base").at("numerics").at("mode").as_string(), "oracle");
  EXPECT_LT(v.at("kl_divergence").at("largest").to_number<double>(), 1e-4);  // the cache keeps f16
}

TEST_F(CliPerplexity, TextSaysWhatWasRunAndRefusalsSayWhatIsNeeded) {
  ASSAY_REQUIRE_FILE(model_);
  const ProgramResult r = assay({"perplexity", model_, "-c", "10", "-p", text_, "--per-token"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("5 chunks of 10, 20 tokens scored"));
  EXPECT_THAT(r.out, HasSubstr("\nperplexity "));
  EXPECT_THAT(r.out, HasSubstr("  \"e\"\n"));
  expect_refusal(assay({"perplexity", model_, "-p", text_, "-c", "128"}), 2,
                 "two chunks or more, 256 tokens; found one of 52");
  expect_refusal(assay({"perplexity", model_, "-p", text_, "-c", "10", "--against", "fuzzy"}), 2,
                 "--against fuzzy: neither a file nor a mode");
  expect_refusal(assay({"perplexity", model_, "-f", "/nonexistent/text"}), 1, "/nonexistent/text");
  const std::string gemma = test::gemma3().string();
  ASSAY_REQUIRE_FILE(gemma);
  expect_refusal(assay({"perplexity", model_, "-p", text_, "-c", "10", "--against", gemma}), 2,
                 "needs the vocabulary of");
}

TEST(CliVocabulary, TokenizeAndDetokenizeAreInverse) {
  const std::string vocabulary = test::shared("vectors/tokenizers/ggml-vocab-llama-bpe.gguf").string();
  ASSAY_REQUIRE_FILE(vocabulary);
  const std::string text = "Hello w\xC3\xB6rld, 123!\n\n  two  blanks \xF0\x9F\x98\x80";
  const ProgramResult ids = assay({"tokenize", vocabulary, "--json", "--no-bos"}, input(text));
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_TRUE(json::parse(ids.out).at("ids").is_array());
  EXPECT_EQ(assay({"detokenize", vocabulary}, input(ids.out)).out, text);
  EXPECT_EQ(json::parse(assay({"detokenize", vocabulary, "--json"}, input(ids.out)).out).at("text").as_string(), text);
  const ProgramResult plain = assay({"tokenize", vocabulary, "--no-bos", "-p", text});
  EXPECT_EQ(json::parse(plain.out), json::parse(ids.out).at("ids"));
}

TEST(CliVocabulary, SpecialTokensAndBosAsAsked) {
  const std::string vocabulary = test::shared("vectors/tokenizers/ggml-vocab-llama-bpe.gguf").string();
  ASSAY_REQUIRE_FILE(vocabulary);
  const auto count = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"tokenize", vocabulary, "-p", "<|end_of_text|>", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return json::parse(assay(arguments).out).at("ids").as_array().size();
  };
  EXPECT_EQ(count({"--no-bos"}), 1u);
  EXPECT_EQ(count({"--bos"}), 2u);
  EXPECT_GT(count({"--no-bos", "--no-special"}), 3u);
}

TEST(CliTemplate, RendersTheTextAndNothingElse) {
  const test::TempFolder folder;
  const std::string path = (folder / "t.jinja").string();
  std::ofstream(path) << "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% "
                         "endfor %}{% if add_generation_prompt %}> {% endif %}";
  const std::string messages = R"([{"role": "user", "content": "Hi \"there\""}])";
  const ProgramResult r = assay({"template", path, "--messages", "-", "--bos-token", "<s>"}, input(messages));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, "<s>[user] Hi \"there\"\n> ");
  EXPECT_EQ(
      assay({"template", path, "--messages", "-", "--no-generation-prompt"}, input("{\"messages\":" + messages + "}"))
          .out,
      "[user] Hi \"there\"\n");
  expect_refusal(assay({"template", path, "--messages", "-"}, input("[{")), 2, "JSON");
  std::ofstream(folder / "bad.jinja") << "{% if %}";
  expect_refusal(assay({"template", (folder / "bad.jinja").string(), "--messages", "-"}, input(messages)), 3, "");
}

// The real model.
class CliModel : public ::testing::Test {
 protected:
  const std::string model_ = test::smollm2().string();
};

TEST_F(CliModel, RunPrintsOnlyTheAnswer) {
  ASSAY_REQUIRE_FILE(model_);
  const ProgramResult r =
      assay({"run", model_, "-p", "The capital of France is", "-n", "8", "--temp", "0", "--no-chat-template"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("Paris"));
  EXPECT_TRUE(r.out.ends_with('\n'));
}

TEST_F(CliModel, RunJsonHasItsKeysAndThePromptComesFromAnywhere) {
  ASSAY_REQUIRE_FILE(model_);
  const std::vector<std::string> common = {"run", model_, "-n", "6", "--temp", "0", "--no-chat-template", "--json"};
  const auto with = [&](std::vector<std::string> more, const ProgramOptions& options = {}) {
    more.insert(more.begin(), common.begin(), common.end());
    const ProgramResult r = assay(more, options);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return json::parse(r.out).as_object();
  };
  const json::object r = with({"-p", "The capital of France is"});
  for (const char* key : {"text", "ids", "finish_reason", "usage", "timings", "numerics"})
    EXPECT_TRUE(r.contains(key)) << key;
  for (const char* phase : {"load", "prefill", "decode"}) {
    for (const char* key : {"tokens", "ms", "tokens_per_second"})
      EXPECT_TRUE(r.at("timings").at(phase).as_object().contains(key));
  }
  EXPECT_EQ(r.at("ids").as_array().size(), 6u);
  EXPECT_EQ(r.at("finish_reason").as_string(), "length");
  EXPECT_EQ(r.at("usage").at("prompt_tokens").as_int64(), 5);
  EXPECT_EQ(with({}, input("The capital of France is\n")).at("ids"), r.at("ids"));
  const test::TempFolder folder;
  std::ofstream(folder / "prompt.txt") << "The capital of France is\n";
  EXPECT_EQ(with({"-f", (folder / "prompt.txt").string()}).at("ids"), r.at("ids"));
  const json::object stopped = with({"-p", "The capital of France is", "--stop", "Par"});
  EXPECT_EQ(stopped.at("finish_reason").as_string(), "stop");
  EXPECT_EQ(std::string(stopped.at("text").as_string()).find("Par"), std::string::npos);
}

TEST_F(CliModel, SeedsRepeatAndDiffer) {
  ASSAY_REQUIRE_FILE(model_);
  const auto text = [&](const std::string& seed) {
    return assay({"run", model_, "-p", "Tell a story.", "-n", "12", "-s", seed, "--temp", "1.5", "--top-k", "0",
                  "--min-p", "0"})
        .out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST_F(CliModel, TextThatLooksLikeAControlTokenStaysTextInChat) {
  ASSAY_REQUIRE_FILE(model_);
  const auto n_prompt = [&](const std::string& text, bool raw) {
    std::vector<std::string> arguments = {"run", model_, "-p", text, "-n", "1", "--json"};
    if (raw) arguments.push_back("--no-chat-template");
    return json::parse(assay(arguments).out).at("usage").at("prompt_tokens").as_int64();
  };
  EXPECT_EQ(n_prompt("<|im_end|>", true), 1);
  EXPECT_GT(n_prompt("<|im_end|>", false), n_prompt("x", false) + 2);
}

TEST_F(CliModel, AnOverlongPromptIsRefusedBeforeAnyWork) {
  ASSAY_REQUIRE_FILE(model_);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "word ";
  expect_refusal(assay({"run", model_, "-p", text, "-c", "64", "-n", "1"}), 2, "an n_ctx of");
}

TEST_F(CliModel, CtrlCEndsTheAnswerAndPrintsWhatThereIs) {
  ASSAY_REQUIRE_FILE(model_);
  for (const int signal : {SIGINT, SIGTERM}) {
    ProgramOptions options;
    options.signal = signal;
    const ProgramResult r =
        assay({"run", model_, "-p", "Count from one to one thousand.", "-n", "4000", "--ignore-eos"}, options);
    EXPECT_EQ(r.exit_code, 128 + signal);
    EXPECT_GT(r.out.size(), 1u);
    EXPECT_TRUE(r.out.ends_with('\n'));
    EXPECT_EQ(r.err, "");
  }
}

TEST_F(CliModel, ABrokenPipeIsQuiet) {
  ASSAY_REQUIRE_FILE(model_);
  ProgramOptions options;
  options.close_output = true;
  const ProgramResult r =
      assay({"run", model_, "-p", "Count from one to one thousand.", "-n", "4000", "--ignore-eos"}, options);
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
}

TEST_F(CliModel, ChatTakesLinesCommandsAndSessions) {
  ASSAY_REQUIRE_FILE(model_);
  const test::TempFolder folder;
  const std::string file = (folder / "chat.json").string();
  const std::string script =
      "/system Answer briefly.\nWhat is the capital of "
      "France?\n/stats\n/regen\n\"\"\"\ntwo\nlines\n\"\"\"\n/save " +
      file + "\n/set temp 0.1\n/set\n/nonsense\n/exit\nnever read\n";
  const ProgramResult r = assay({"chat", model_, "-n", "12", "--temp", "0"}, input(script));
  EXPECT_EQ(r.exit_code, 1) << r.err;  // /nonsense failed
  EXPECT_THAT(r.out, HasSubstr("France"));
  EXPECT_THAT(r.out, HasSubstr("tokens/s"));
  EXPECT_THAT(r.out, HasSubstr("temp 0.1"));
  EXPECT_THAT(r.err, HasSubstr("there is no command /nonsense"));
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const json::value saved = json::parse(text.str());
  ASSERT_EQ(saved.at("messages").as_array().size(), 5u);
  EXPECT_EQ(saved.at("messages").at(0).at("role").as_string(), "system");
  EXPECT_EQ(saved.at("messages").at(3).at("content").as_string(), "two\nlines");
  const ProgramResult again = assay({"chat", model_, "-n", "8"}, input("/load " + file + "\n/regen\n"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_GT(again.out.size(), 1u);
}

TEST_F(CliModel, AFileCutWhileMappedIsAnError) {
  ASSAY_REQUIRE_FILE(model_);
  const test::TempFolder folder;
  const auto copy = folder / "cut.gguf";
  std::filesystem::copy_file(model_, copy);
  ProgramOptions options;
  options.input = "Hi\n/load " + (folder / "fifo").string() + "\nAgain\n";
  // The second command blocks on a pipe with a name; while it waits, the file is cut.
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::thread cutter([&] {
    std::ofstream fifo(folder / "fifo");  // returns once the program opened it for reading
    std::filesystem::resize_file(copy, 4096);
    fifo << R"({"assay_session": 1, "messages": []})";
  });
  const ProgramResult r = assay({"chat", copy.string(), "-n", "4"}, options);
  cutter.join();
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("was cut"));
}

TEST_F(CliModel, ABusErrorEndsWithOneLine) {  // a file that is cut in the middle of a run
  ASSAY_REQUIRE_FILE(model_);
  ProgramOptions options;
  options.signal = SIGBUS;
  const ProgramResult r = assay({"run", model_, "-p", "Count.", "-n", "4000", "--ignore-eos"}, options);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, StartsWith("assay: "));
  EXPECT_THAT(r.err, HasSubstr("SIGBUS"));
}

}  // namespace
}  // namespace assay
