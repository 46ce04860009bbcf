// See machine.h.
#include "doctor/machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>

#include "backend/cpu/linear/linear.h"
#include "base/aligned_buffer.h"
#include "base/processors.h"

namespace assay::doctor {
namespace {

constexpr std::array<std::string_view, 22> kFeatures = {
    "sse4_2",   "avx",         "avx2",        "fma",      "f16c",     "avx_vnni", "avx512f", "avx512bw",
    "avx512vl", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd",    "fphp",    "asimdhp",
    "asimddp",  "i8mm",        "bf16",        "sve",      "sve2",     "sme"};

std::vector<std::string> features_of(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(std::min(line.find(':') + 1, line.size())));
    std::vector<std::string> found;
    for (std::string word; words >> word;) {
      if (std::find(kFeatures.begin(), kFeatures.end(), word) != kFeatures.end()) found.push_back(word);
    }
    return found;
  }
  return {};
}

// The lines "Name:   123 kB" of /proc/meminfo, in bytes.
std::map<std::string, int64_t> memory_lines(const std::string& root) {
  std::map<std::string, int64_t> lines;
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string name;
    int64_t kilobytes = 0;
    if (in >> name >> kilobytes && name.ends_with(':')) lines[name.substr(0, name.size() - 1)] = kilobytes * 1024;
  }
  return lines;
}

int online_processors(const std::string& root) {  // "0-15,32-47"
  std::ifstream file(root + "/sys/devices/system/cpu/online");
  int n = 0;
  for (std::string range; std::getline(file, range, ',');) {
    int first = 0, last = 0;
    const char* const end = range.data() + range.size();
    const auto begin = std::from_chars(range.data(), end, first);
    if (begin.ec != std::errc()) continue;
    last = first;
    if (begin.ptr != end && *begin.ptr == '-') std::from_chars(begin.ptr + 1, end, last);
    n += std::max(0, last - first + 1);
  }
  return n;
}

int64_t limit_of(decltype(RLIMIT_AS) which) {
  struct rlimit limit {};
  if (::getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

std::string network_file_system(long type) {
  switch (static_cast<unsigned long>(type) & 0xffffffff) {
    case 0x6969: return "NFS";
    case 0x517b: return "SMB";
    case 0xff534d42:
    case 0xfe534d42: return "CIFS";
    case 0x00c36400: return "Ceph";
    case 0x0bd00bd0: return "Lustre";
    case 0x5346414f: return "AFS";
    case 0x01021997: return "9P";
    default: return {};
  }
}

MachineFacts read_machine(const std::string& root) {
  MachineFacts facts;
  facts.features = features_of(root);
  for (const Kernels set : backend::cpu::kernel_sets()) facts.kernels.emplace_back(name(set));
  facts.n_processors = static_cast<int>(base::allowed_processors().size());
  facts.n_cores = base::physical_cores();
  facts.n_processors_online = std::max(online_processors(root), facts.n_processors);
  const std::map<std::string, int64_t> memory = memory_lines(root);
  const auto line = [&](const char* name) {
    const auto at = memory.find(name);
    return at == memory.end() ? int64_t{0} : at->second;
  };
  facts.memory_bytes = line("MemTotal");
  facts.available_bytes = std::min(line("MemAvailable"),
                                   static_cast<int64_t>(std::min<uint64_t>(base::memory_available_bytes(), INT64_MAX)));
  facts.swap_bytes = line("SwapTotal");
  facts.swap_used_bytes = line("SwapTotal") - line("SwapFree");
  const uint64_t total = base::memory_total_bytes();
  if (total < static_cast<uint64_t>(facts.memory_bytes)) facts.group_memory_limit = static_cast<int64_t>(total);
  facts.address_space_limit = limit_of(RLIMIT_AS);
  facts.locked_memory_limit = limit_of(RLIMIT_MEMLOCK);
  facts.open_files_limit = limit_of(RLIMIT_NOFILE);
  std::error_code unknown;
  facts.has_nvidia_driver = std::filesystem::exists(root + "/proc/driver/nvidia/version", unknown);
  return facts;
}

}  // namespace assay::doctor
