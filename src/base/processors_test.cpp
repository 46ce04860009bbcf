#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "assay/error.h"
#include "support/temp_folder.h"

namespace assay::base {
namespace {

TEST(Processors, AreThoseOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto allowed = allowed_processors();
  const std::set<int> distinct(allowed.begin(), allowed.end());
  EXPECT_EQ(distinct.size(), allowed.size());
  EXPECT_EQ(distinct.size(), static_cast<size_t>(CPU_COUNT(&before)));
  EXPECT_GE(physical_cores(), 1);
  EXPECT_EQ(pool_threads(0), physical_cores());
  EXPECT_EQ(pool_threads(3), 3);
  EXPECT_THROW(pool_threads(-1), Error);
  EXPECT_LE(physical_cores(), static_cast<int>(allowed.size()));

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(allowed.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_processors(), std::vector<int>{allowed.back()});
  EXPECT_EQ(physical_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// A machine of files: its processors' packages and cores, and the control group of the process.
class Machine {
 public:
  void processor(int number, int package, int core) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/";
    write(folder + "physical_package_id", std::to_string(package));
    write(folder + "core_id", std::to_string(core));
  }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text << "\n";
  }
  std::string root() const { return folder_.path().string(); }

 private:
  test::TempFolder folder_;
};

TEST(Processors, OneThreadForEachPhysicalCore) {
  const Machine
      machine;  // two packages of two cores with two threads each; siblings are 4 apart, as Linux numbers them
  for (int i = 0; i < 8; ++i) machine.processor(i, i / 2 % 2, i % 2);
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(physical_cores(all, machine.root()), 4);
  EXPECT_EQ(cores_first(all, machine.root()), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  const std::vector<int> pinned = {1, 5, 2, 6};  // of two cores both threads
  EXPECT_EQ(physical_cores(pinned, machine.root()), 2);
  EXPECT_EQ(cores_first(pinned, machine.root()), (std::vector<int>{1, 2, 5, 6}));
  EXPECT_EQ(physical_cores(std::vector<int>{7}, machine.root()), 1);
}

TEST(Processors, WithoutTopologyEveryProcessorIsACore) {
  const Machine machine;
  EXPECT_EQ(physical_cores(std::vector<int>{3, 4, 9}, machine.root()), 3);
  EXPECT_EQ(cores_first(std::vector<int>{9, 3, 4}, machine.root()), (std::vector<int>{9, 3, 4}));
}

TEST(Processors, TheControlGroupsShareIsALimit) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  {
    const Machine machine;  // v2: the smallest share on the way up counts
    machine.write("proc/self/cgroup", "0::/user.slice/job");
    machine.write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000");
    EXPECT_EQ(physical_cores(all, machine.root()), 8);
    machine.write("sys/fs/cgroup/user.slice/cpu.max", "350000 100000");
    EXPECT_EQ(physical_cores(all, machine.root()), 3);
    machine.write("sys/fs/cgroup/user.slice/job/cpu.max", "50000 100000");  // half a processor still runs one thread
    EXPECT_EQ(physical_cores(all, machine.root()), 1);
  }
  const Machine machine;  // v1: -1 is no limit
  machine.write("proc/self/cgroup", "7:memory:/\n4:cpu,cpuacct:/box");
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1");
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  EXPECT_EQ(physical_cores(all, machine.root()), 8);
  machine.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "200000");
  EXPECT_EQ(physical_cores(all, machine.root()), 2);
}

}  // namespace
}  // namespace assay::base
