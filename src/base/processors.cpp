// Reads the affinity mask, the core topology under /sys and the quota of the control groups (v2 and v1).
#include "base/processors.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "assay/error.h"

namespace assay::base {
namespace {

std::vector<int> affinity_mask() {
  std::vector<int> processors;
  for (int n_bits = 1024; n_bits <= (1 << 20); n_bits *= 2) {  // the kernel refuses a mask smaller than its own
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(n_bits));
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(n_bits));
    CPU_ZERO_S(bytes, set);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; ok && i < n_bits; ++i) {
      if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) processors.push_back(i);
    }
    CPU_FREE(set);
    if (ok) break;
  }
  if (processors.empty()) processors.push_back(0);
  return processors;
}

std::optional<long> read_number(const std::string& path) {
  std::ifstream in(path);
  long number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

// Package and core of a processor; a processor whose topology cannot be read counts as a core of its own.
std::pair<long, long> core_of(const std::string& root, int processor) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/";
  const auto package = read_number(folder + "physical_package_id");
  const auto core = read_number(folder + "core_id");
  if (!package || !core) return {-1, processor};
  return {*package, *core};
}

// Whole processors' worth of time in "quota period", where there is a limit.
std::optional<int> share(long quota, long period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::max(1L, quota / period));
}

std::optional<int> share_of_group(const std::string& folder) {
  std::ifstream v2(folder + "/cpu.max");
  std::string quota;
  long period = 0;
  if (v2 >> quota >> period) {
    if (quota == "max") return std::nullopt;
    return share(std::strtol(quota.c_str(), nullptr, 10), period);
  }
  const auto v1_quota = read_number(folder + "/cpu.cfs_quota_us");
  const auto v1_period = read_number(folder + "/cpu.cfs_period_us");
  if (v1_quota && v1_period) return share(*v1_quota, *v1_period);
  return std::nullopt;
}

// The smallest share of this process's group and all groups above it.
std::optional<int> control_group_share(const std::string& root) {
  std::optional<int> smallest;
  const auto visit = [&](const std::string& mount, std::string path) {
    for (;;) {
      const auto found = share_of_group(fmt::format("{}{}{}", root, mount, path));
      if (found && (!smallest || *found < *smallest)) smallest = found;
      if (path.empty() || path == "/") return;
      path.erase(path.rfind('/'));
    }
  };
  std::ifstream groups(root + "/proc/self/cgroup");  // lines "id:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.empty()) visit("/sys/fs/cgroup", path);
    if (controllers.find("cpu") != std::string::npos) visit("/sys/fs/cgroup/" + controllers, path);
  }
  return smallest;
}

}  // namespace

std::vector<int> cores_first(std::span<const int> processors, const std::string& root) {
  std::vector<int> first, siblings;
  std::set<std::pair<long, long>> cores;
  for (int processor : processors)
    (cores.insert(core_of(root, processor)).second ? first : siblings).push_back(processor);
  first.insert(first.end(), siblings.begin(), siblings.end());
  return first;
}

int physical_cores(std::span<const int> processors, const std::string& root) {
  std::set<std::pair<long, long>> cores;
  for (int processor : processors) cores.insert(core_of(root, processor));
  const int n_cores = static_cast<int>(cores.size());
  return std::max(1, std::min(n_cores, control_group_share(root).value_or(n_cores)));
}

std::vector<int> allowed_processors() { return cores_first(affinity_mask(), ""); }

int physical_cores() { return physical_cores(affinity_mask(), ""); }

int pool_threads(int n_asked) {
  if (n_asked < 0)
    throw Error(Errc::bad_request, fmt::format("{} threads: needs 1 or more, or 0 for one a core", n_asked));
  return n_asked == 0 ? physical_cores() : n_asked;
}

}  // namespace assay::base
