// The rules of the doctor over machines made up here, and one report of this machine.
#include "assay/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "doctor/findings.h"
#include "doctor/machine.h"
#include "support/temp_folder.h"
#include "support/tiny_model.h"

namespace assay::doctor {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

MachineFacts good_machine() {
  MachineFacts m;
  m.kernels = {"reference", "avx2"};
  m.n_cores = 8;
  m.n_processors = m.n_processors_online = 16;
  m.memory_bytes = 64 * kGiB;
  m.available_bytes = 50 * kGiB;
  m.devices.no_cuda = "built without CUDA";
  return m;
}

DoctorModel good_model() {
  DoctorModel model;
  model.name = "m";
  model.bytes = model.needs_bytes = kGiB;
  model.fits = true;
  return model;
}

DoctorStore own_store() {
  DoctorStore store;
  store.folder = {StoreKind::assay, "/models"};
  store.exists = true;
  store.n_models = 1;
  store.free_bytes = 100 * kGiB;
  return store;
}

std::vector<std::string> rules(const MachineFacts& machine, const DoctorModel& model = good_model(),
                               const DoctorStore& store = own_store(), int64_t n_threads = 0,
                               const std::vector<std::string>& partials = {}) {
  std::vector<std::string> found;
  for (const DoctorFinding& finding : find_mistakes(machine, {store}, {model}, partials, n_threads)) {
    EXPECT_NE(finding.what, "");
    EXPECT_NE(finding.advice, "");
    found.push_back(finding.rule);
  }
  return found;
}

TEST(Doctor, AGoodMachineHasNoFindings) { EXPECT_THAT(rules(good_machine()), IsEmpty()); }

TEST(Doctor, MistakesOfTheMachine) {
  MachineFacts m = good_machine();
  m.kernels = {"reference"};
  EXPECT_THAT(rules(m), ElementsAre("no_fast_kernels"));
  m = good_machine();
  m.swap_used_bytes = kGiB;
  EXPECT_THAT(rules(m), ElementsAre("swap_in_use"));
  m = good_machine();
  m.group_memory_limit = 4 * kGiB;
  EXPECT_THAT(rules(m), ElementsAre("memory_limit"));
  m = good_machine();
  m.address_space_limit = kGiB;
  EXPECT_THAT(rules(m), ElementsAre("address_space_limit"));
  m = good_machine();
  m.n_processors = 2;
  EXPECT_THAT(rules(m), ElementsAre("few_processors"));
  m = good_machine();
  m.has_nvidia_driver = true;
  EXPECT_THAT(rules(m), ElementsAre("gpu_unused"));
  EXPECT_THAT(rules(good_machine(), good_model(), own_store(), 1), ElementsAre("few_threads"));
  EXPECT_THAT(rules(good_machine(), good_model(), own_store(), 17), ElementsAre("many_threads"));
  EXPECT_THAT(rules(good_machine(), good_model(), own_store(), 8), IsEmpty());
}

TEST(Doctor, MistakesOfFiles) {
  DoctorModel model = good_model();
  model.fits = false;
  EXPECT_THAT(rules(good_machine(), model), ElementsAre("does_not_fit"));
  model.problem = "m.gguf: the file is cut";
  EXPECT_THAT(rules(good_machine(), model), ElementsAre("unusable_file"));
  DoctorStore store = own_store();
  store.network_disk = network_file_system(0x6969);
  EXPECT_EQ(store.network_disk, "NFS");
  EXPECT_EQ(network_file_system(0xef53), "");  // ext4
  EXPECT_THAT(rules(good_machine(), good_model(), store), ElementsAre("network_disk"));
  store = own_store();
  store.free_bytes = 1000;
  EXPECT_THAT(rules(good_machine(), good_model(), store), ElementsAre("little_room"));
  EXPECT_THAT(rules(good_machine(), good_model(), own_store(), 0, {"/models/x.gguf.partial"}),
              ElementsAre("partial_file"));
  EXPECT_EQ(find_mistakes(good_machine(), {own_store()}, {}, {}, 0).front().rule, "no_models");
}

TEST(Doctor, ReadsTheSystemsFiles) {
  test::TempFolder root;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  write("proc/cpuinfo", "processor : 0\nflags\t\t: fpu avx2 fma ht avx512f\nprocessor : 1\nflags : none\n");
  write("proc/meminfo",
        "MemTotal:       16000000 kB\nMemAvailable:    1000 kB\nSwapTotal:  2000 kB\nSwapFree:  500 "
        "kB\nHugePages_Total:  7\n");
  write("sys/devices/system/cpu/online", "0-63,128-191\n");
  write("proc/driver/nvidia/version", "NVRM");
  const MachineFacts m = read_machine(root.path().string());
  EXPECT_THAT(m.features, ElementsAre("avx2", "fma", "avx512f"));
  EXPECT_EQ(m.memory_bytes, int64_t{16000000} * 1024);
  EXPECT_LE(m.available_bytes, 1000 * 1024);
  EXPECT_EQ(m.swap_used_bytes, 1500 * 1024);
  EXPECT_EQ(m.n_processors_online, 128);
  EXPECT_TRUE(m.has_nvidia_driver);
  EXPECT_THAT(m.kernels, Contains("reference"));
  const MachineFacts nothing = read_machine((root / "none").string());
  EXPECT_THAT(nothing.features, IsEmpty());
  EXPECT_EQ(nothing.n_processors_online, nothing.n_processors);
}

TEST(Doctor, AReportOfThisMachine) {
  test::TempFolder folder;
  test::write_tiny_model(folder / "tiny.gguf");
  std::ofstream(folder / "cut.gguf") << "GGUF";
  std::ofstream(folder / "left.gguf.partial") << "GGUF";
  DoctorOptions options;
  options.stores = {{StoreKind::assay, folder.path().string()}, {StoreKind::ollama, "/nowhere"}};
  options.measure_bandwidth = false;
  const DoctorReport report = examine(options);
  ASSERT_EQ(report.models.size(), 2u);
  EXPECT_EQ(report.models[0].name, "cut");
  EXPECT_NE(report.models[0].problem, "");
  EXPECT_EQ(report.models[1].architecture, "llama");
  EXPECT_GT(report.models[1].needs_bytes, report.models[1].bytes / 2);
  EXPECT_EQ(report.stores[0].n_models, 2);
  EXPECT_FALSE(report.stores[1].exists);
  const json::value all = json::parse(report.to_json());
  EXPECT_GT(all.at("machine").at("memory_bytes").as_int64(), 0);
  EXPECT_TRUE(all.at("machine").at("read_bandwidth").is_null());
  EXPECT_EQ(all.at("stores").as_array().size(), 2u);
  EXPECT_THAT(report.to_text(), HasSubstr("unusable_file"));
  EXPECT_THAT(report.to_text(), HasSubstr("partial_file"));
  EXPECT_THAT(report.to_text(), HasSubstr("not there"));
}

}  // namespace
}  // namespace assay::doctor
