// Stores as the four programs lay them out, written here by hand, and what names mean in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "assay/error.h"
#include "assay/store.h"
#include "store/ollama.h"
#include "store/origin.h"
#include "support/gguf_writer.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kDigestA(64, 'a'), kDigestB(64, 'b');

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void write_model(const fs::path& path) {
  fs::create_directories(path.parent_path());
  test::GgufWriter file;
  file.set("general.architecture", "llama").set("general.name", "Tiny").set("llama.context_length", uint32_t{512});
  file.set("tokenizer.chat_template", "{{ messages }}");
  file.tensor("output_norm.weight", {4}, {1, 2, 3, 4});
  file.write(path);
}

class Stores : public testing::Test {
 protected:
  fs::path own(const std::string& name) const { return home_ / ".cache/assay/models/" / name; }
  fs::path hub(const std::string& name) const { return home_ / ".cache/huggingface/hub/" / name; }
  fs::path ollama(const std::string& name) const { return home_ / ".ollama/models/" / name; }
  fs::path studio(const std::string& name) const { return home_ / ".lmstudio/models/" / name; }

  ModelStores stores() const { return ModelStores(store_folders({home_.path().string(), {}, {}, {}, {}, {}})); }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const StoredModel& model : stores().list().models) result.push_back(model.name);
    return result;
  }
  std::string refusal(const std::string& name, Errc code) const {
    try {
      return "accepted: " + stores().resolve(name);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code), static_cast<int>(code)) << error.what();
      return error.what();
    }
  }
  void add_to_hub(const std::string& repository, const std::string& commit, const std::string& file,
                  const std::string& digest, bool is_main = true) const {
    const fs::path folder = hub(repository);
    write_model(folder / "blobs" / digest);
    const fs::path link = folder / "snapshots" / commit / file;
    fs::create_directories(link.parent_path());
    fs::create_symlink(folder / "blobs" / digest, link);
    if (is_main) write(folder / "refs/main", commit);
  }
  void add_to_ollama(const std::string& path, const std::string& layers) const {
    write(ollama("manifests/" + path), R"({"schemaVersion":2,"layers":[)" + layers + "]}");
  }
  static std::string layer(const std::string& type, const std::string& digest) {
    return R"({"mediaType":"application/vnd.ollama.image.)" + type + R"(","digest":")" + digest + R"("})";
  }

  test::TempFolder home_;
};

TEST_F(Stores, FoldersByTheEnvironment) {
  const auto paths = [](const StoreEnvironment& e) {
    std::vector<std::string> result;
    for (const StoreFolder& folder : store_folders(e)) result.push_back(folder.path);
    return result;
  };
  const auto home_alone = [](const std::string& home) {
    StoreEnvironment e;
    e.home = home;
    return e;
  };
  EXPECT_THAT(paths(home_alone("/h")),
              ElementsAre("/h/.cache/assay/models", "/h/.cache/huggingface/hub", "/h/.ollama/models",
                          "/h/.lmstudio/models", "/h/.cache/lm-studio/models"));
  EXPECT_THAT(paths({.home = "/h",
                     .xdg_cache_home = "/c",
                     .assay_models = {},
                     .hf_hub_cache = {},
                     .hf_home = "/hf",
                     .ollama_models = "/o"}),
              ElementsAre("/c/assay/models", "/hf/hub", "/o", "/h/.lmstudio/models", "/h/.cache/lm-studio/models"));
  EXPECT_THAT(paths({.home = {},
                     .xdg_cache_home = {},
                     .assay_models = "/m",
                     .hf_hub_cache = "/hub",
                     .hf_home = "/hf",
                     .ollama_models = {}}),
              ElementsAre("/m", "/hub"));
  EXPECT_THROW(ModelStores(store_folders({})).own_folder(), Error);
}

TEST_F(Stores, NothingThereIsNoProblem) {
  EXPECT_TRUE(stores().list().models.empty());
  EXPECT_TRUE(stores().list().problems.empty());
}

TEST_F(Stores, NamesOfEachStore) {
  write_model(own("smollm2-135m-instruct-Q4_1.gguf"));
  write_model(own("Big-00001-of-00002.gguf"));
  write_model(own("Big-00002-of-00002.gguf"));
  write(own("Other.gguf.partial"), "GGUF");
  write(own("notes.txt"), "x");
  write(own(".hidden.gguf"), "x");
  fs::create_directories(own("folder.gguf"));
  add_to_hub("models--bartowski--SmolLM2-GGUF", "c0ffee0", "SmolLM2-Q4_K_M.gguf", kDigestA);
  add_to_hub("models--bartowski--SmolLM2-GGUF", "c0ffee0", "SmolLM2-Q8_0.gguf", kDigestB);
  add_to_hub("models--bartowski--SmolLM2-GGUF", "c0ffee0", "mmproj-F16.gguf", kDigestB);
  add_to_ollama("registry.ollama.ai/library/gemma3/270m",
                layer("license", "x") + "," + layer("model", "sha256:" + kDigestA));
  add_to_ollama("registry.ollama.ai/someone/tuned/latest", layer("model", "sha256:" + kDigestA));
  add_to_ollama("hf.co/user/repo/Q4_K_M", layer("model", "sha256:" + kDigestA));
  write_model(ollama("blobs/sha256-" + kDigestA));
  write_model(studio("lmstudio-community/Phi-GGUF/Phi-Q6_K.gguf"));
  EXPECT_THAT(names(), ElementsAre("Big", "smollm2-135m-instruct-Q4_1", "bartowski/SmolLM2-GGUF:Q4_K_M",
                                   "bartowski/SmolLM2-GGUF:Q8_0", "bartowski/SmolLM2-GGUF:mmproj-F16", "gemma3:270m",
                                   "hf.co/user/repo:Q4_K_M", "someone/tuned:latest", "Phi-Q6_K"));
  EXPECT_EQ(stores().resolve("gemma3:270m"), ollama("blobs/sha256-" + kDigestA).string());
  EXPECT_EQ(stores().resolve("someone/tuned"), stores().resolve("someone/tuned:latest"));
  EXPECT_EQ(stores().resolve("Phi-Q6_K"), studio("lmstudio-community/Phi-GGUF/Phi-Q6_K.gguf").string());
  EXPECT_EQ(stores().resolve("bartowski/SmolLM2-GGUF:q8_0"),
            hub("models--bartowski--SmolLM2-GGUF/snapshots/c0ffee0/SmolLM2-Q8_0.gguf").string());
  const StoredModel big = stores().find("big");
  EXPECT_EQ(big.parts.size(), 2u);
  EXPECT_EQ(big.path(), own("Big-00001-of-00002.gguf").string());
  EXPECT_EQ(big.bytes, static_cast<int64_t>(2 * fs::file_size(own("Big-00001-of-00002.gguf"))));
}

TEST_F(Stores, OlderSnapshotsHaveTheirCommitInTheName) {
  add_to_hub("models--u--r", "1111111222", "m-Q4_0.gguf", kDigestA, false);
  add_to_hub("models--u--r", "9999999888", "m-Q4_0.gguf", kDigestB);
  EXPECT_THAT(names(), ElementsAre("u/r:Q4_0", "u/r@1111111:Q4_0"));
  EXPECT_EQ(stores().resolve("u/r:Q4_0"), hub("models--u--r/snapshots/9999999888/m-Q4_0.gguf").string());
  EXPECT_EQ(find_origin(stores().find("u/r:Q4_0"))->sha256, kDigestB);
  EXPECT_EQ(find_origin(stores().find("u/r:Q4_0"))->repository, "u/r");
}

TEST_F(Stores, ABeginningIsEnoughWhereItIsOneModels) {
  write_model(own("smollm2-135m-instruct-Q4_1.gguf"));
  write_model(own("gemma3-270m-Q4_K_M.gguf"));
  write_model(own("gemma3-270m-Q8_0.gguf"));
  EXPECT_EQ(stores().resolve("SMOLLM2"), own("smollm2-135m-instruct-Q4_1.gguf").string());
  EXPECT_THAT(refusal("gemma3", Errc::bad_request),
              AllOf(HasSubstr("gemma3: 2 models"), HasSubstr("gemma3-270m-Q4_K_M"), HasSubstr("gemma3-270m-Q8_0")));
  write_model(own("gemma3.gguf"));  // exact outranks beginnings
  EXPECT_EQ(stores().resolve("gemma3"), own("gemma3.gguf").string());
  EXPECT_EQ(stores().resolve("Gemma3"), own("gemma3.gguf").string());
}

TEST_F(Stores, OursOutranksOthersAndTheSameFileIsOne) {
  write_model(studio("a/b/m-Q4_0.gguf"));
  write_model(studio("c/d/m-Q4_0.gguf"));
  EXPECT_THAT(refusal("m-Q4_0", Errc::bad_request), AllOf(HasSubstr("a/b/m-Q4_0.gguf"), HasSubstr("c/d/m-Q4_0.gguf")));
  write_model(own("m-Q4_0.gguf"));
  EXPECT_EQ(stores().resolve("m-Q4_0"), own("m-Q4_0.gguf").string());
  fs::remove(own("m-Q4_0.gguf"));
  fs::remove(studio("c/d/m-Q4_0.gguf"));
  fs::create_symlink(studio("a/b/m-Q4_0.gguf"), studio("c/d/m-Q4_0.gguf"));
  EXPECT_EQ(stores().resolve("m-Q4_0"), studio("a/b/m-Q4_0.gguf").string());
}

TEST_F(Stores, UnknownNamesTheNearestAndPull) {
  write_model(own("smollm2-135m-instruct-Q4_1.gguf"));
  EXPECT_THAT(refusal("smolm2", Errc::io),
              AllOf(HasSubstr("smolm2: there is no such file"),
                    HasSubstr("nearest: smollm2-135m-instruct-Q4_1, smollm2"), HasSubstr("assay pull")));
  EXPECT_THAT(refusal("llama3.2", Errc::io), HasSubstr("`assay pull llama3.2` fetches it"));
  EXPECT_THAT(refusal("user/repo:Q4_K_M", Errc::io), HasSubstr("`assay pull user/repo:Q4_K_M` fetches it"));
  EXPECT_THAT(refusal("/nowhere/x.gguf", Errc::io),
              AllOf(HasSubstr("there is no such file"), Not(HasSubstr("nearest"))));
  refusal("", Errc::io);
  refusal(std::string(100000, 'x'), Errc::io);
}

TEST_F(Stores, APathThatExistsIsItself) {
  write_model(own("m.gguf"));
  write(home_ / "file", "x");
  EXPECT_EQ(stores().resolve((home_ / "file").string()), (home_ / "file").string());
  EXPECT_EQ(stores().resolve("/dev/null"), "/dev/null");  // the reader says what it is
  EXPECT_THAT(refusal(home_.path().string(), Errc::io), HasSubstr("is a folder; needs a GGUF file"));
}

TEST_F(Stores, WhatCannotRunSaysWhy) {
  write_model(own("Big-00001-of-00003.gguf"));
  write_model(own("Big-00003-of-00003.gguf"));
  EXPECT_THAT(refusal("big", Errc::io), HasSubstr("part 2 of 3 is missing"));
  add_to_ollama("registry.ollama.ai/library/lora/latest",
                layer("model", "sha256:" + kDigestA) + "," + layer("adapter", "sha256:" + kDigestB));
  add_to_ollama("registry.ollama.ai/library/lost/latest", layer("model", "sha256:" + kDigestB));
  write_model(ollama("blobs/sha256-" + kDigestA));
  EXPECT_THAT(refusal("lora", Errc::unsupported), HasSubstr("adapter"));
  EXPECT_THAT(refusal("lost", Errc::io), HasSubstr("missing"));
}

// B81, B83: a manifest names no file outside of blobs/.
TEST(OllamaManifests, HostileOnesAreRefused) {
  using store::parse_manifest;
  const auto with_digest = [](const std::string& digest) {
    return parse_manifest(R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":")" + digest +
                          R"("}]})");
  };
  for (const char* digest : {"", "sha256:", "sha256:../../../../etc/passwd", "../x", "sha256-abc", "sha512:abc"}) {
    EXPECT_EQ(with_digest(digest).model_blob, "") << digest;
    EXPECT_THAT(with_digest(digest).problem, HasSubstr("64 hexadecimal digits")) << digest;
  }
  EXPECT_EQ(with_digest("sha256:" + kDigestA).model_blob, "sha256-" + kDigestA);
  for (const char* text : {"", "{", "[]", "{}", R"({"layers":{}})", R"({"layers":[]})", R"({"layers":[1,null,{}]})",
                           R"({"layers":[{"mediaType":5}]})"}) {
    EXPECT_EQ(parse_manifest(text).model_blob, "") << text;
    EXPECT_NE(parse_manifest(text).problem, "") << text;
  }
  EXPECT_NE(parse_manifest(std::string(100000, '[')).problem, "");
}

TEST_F(Stores, FactsOfAFile) {
  write_model(own("m.gguf"));
  const ModelFacts facts = read_facts(stores().find("m"));
  EXPECT_EQ(facts.architecture, "llama");
  EXPECT_EQ(facts.weights_type, "F32");
  EXPECT_EQ(facts.title, "Tiny");
  EXPECT_EQ(facts.n_ctx_train, 512);
  EXPECT_EQ(facts.n_parameters, 4);
  EXPECT_EQ(facts.template_bytes, 14);
  EXPECT_EQ(facts.problem, "");
  write(own("page.gguf"), "<html>");
  EXPECT_THAT(read_facts(stores().find("page")).problem, HasSubstr("no GGUF file"));
}

TEST_F(Stores, DigestsAreThoseOfTheStandard) {  // FIPS 180-2, appendix B
  write(home_ / "abc", "abc");
  EXPECT_EQ(sha256_of_file((home_ / "abc").string()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_THROW(sha256_of_file((home_ / "none").string()), Error);
}

TEST_F(Stores, NotesHoldForTheFileTheyWereMadeOf) {
  write_model(own("gemma-3-270m-it-Q4_K_M.gguf"));
  const store::OriginNote note = {
      {kDigestA, "https://example.org/g.gguf", "u/r", "Q4_K_M", "2026-11-23T21:05:00Z", "tag"}, "gemma3"};
  const fs::path file = own("gemma-3-270m-it-Q4_K_M.gguf");
  store::write_origin(file, file, note);
  EXPECT_EQ(stores().resolve("gemma3"), file.string());
  EXPECT_EQ(stores().resolve("u/r:q4_k_m"), file.string());
  const auto origin = find_origin(stores().find("gemma3"));
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->sha256, kDigestA);
  EXPECT_EQ(origin->url, "https://example.org/g.gguf");
  EXPECT_EQ(origin->time, "2026-11-23T21:05:00Z");
  std::ofstream(file, std::ios::app) << "more";
  EXPECT_FALSE(find_origin(stores().find("gemma-3-270m")));
  for (const char* text : {"", "{", "[]", "{\"bytes\":\"x\"}", "null"}) {
    write(store::origin_path(file), text);
    EXPECT_FALSE(find_origin(stores().find("gemma-3-270m"))) << text;
  }
}

TEST_F(Stores, RemovesFromOursAlone) {
  write_model(own("Big-00001-of-00002.gguf"));
  write_model(own("Big-00002-of-00002.gguf"));
  write_model(own("keep.gguf"));
  write(own("gone.gguf.partial"), "GGUF");
  write_model(studio("a/b/theirs.gguf"));
  const auto code_of = [&](const std::string& name) {
    try {
      stores().remove(name);
      return std::string("removed");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(code_of("bi"), HasSubstr("no model of exactly that name"));
  EXPECT_THAT(code_of("theirs"), HasSubstr("another program's store"));
  EXPECT_THAT(code_of("../keep"), HasSubstr("no model of exactly that name"));
  EXPECT_EQ(code_of("Big"), "removed");
  EXPECT_EQ(code_of("gone"), "removed");
  EXPECT_THAT(names(), ElementsAre("keep", "theirs"));
  EXPECT_FALSE(fs::exists(own("gone.gguf.partial")));
}

TEST(SmallFiles, NothingIsLeftWhereOneCannotTakeItsName) {
  const test::TempFolder folder;
  fs::create_directories(folder / "note/inside");
  EXPECT_THROW(store::write_small_file(folder / "note", "text"), Error);
  EXPECT_FALSE(fs::exists(folder / "note.new"));
  store::write_small_file(folder / "other", "text");
  EXPECT_EQ(store::read_small_file(folder / "other", 100), "text");
  EXPECT_EQ(store::read_small_file(folder / "other", 3), std::nullopt);
}

}  // namespace
}  // namespace assay
