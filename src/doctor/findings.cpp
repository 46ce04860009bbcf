// The rules of `assay doctor`, one after the other.
#include "doctor/findings.h"

#include <fmt/core.h>

#include <algorithm>

namespace assay::doctor {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

void look_at_processor(const MachineFacts& m, int64_t n_threads, std::vector<DoctorFinding>& out) {
  if (m.kernels.size() == 1) {
    out.push_back(
        {"no_fast_kernels",
         "the processor has none of the instructions that our fast kernels need, or hides them (a virtual machine?)",
         "give the virtual machine the host's processor type; else expect a tenth of the speed"});
  }
  if (n_threads > 0 && n_threads * 2 <= m.n_cores) {
    out.push_back({"few_threads", fmt::format("ASSAY_THREADS asks for {} of {} cores", n_threads, m.n_cores),
                   "unset it: without it, each core has a thread"});
  }
  if (n_threads > m.n_processors) {
    out.push_back({"many_threads",
                   fmt::format("ASSAY_THREADS asks for {} threads on {} processors", n_threads, m.n_processors),
                   "unset it: threads that share a processor wait for one another"});
  }
  if (m.n_processors * 2 <= m.n_processors_online) {
    out.push_back({"few_processors",
                   fmt::format("this process may use {} of {} processors (taskset, a container or a batch system)",
                               m.n_processors, m.n_processors_online),
                   "ask that tool for more"});
  }
  if (m.has_nvidia_driver && !m.devices.no_cuda.empty()) {
    out.push_back({"gpu_unused", fmt::format("an NVIDIA driver is here, but no GPU can be used: {}", m.devices.no_cuda),
                   "build with -DASSAY_CUDA=ON, or see docs/devices.md"});
  }
}

void look_at_memory(const MachineFacts& m, const std::vector<DoctorModel>& models, std::vector<DoctorFinding>& out) {
  if (m.swap_used_bytes > 256 * kMiB) {
    out.push_back({"swap_in_use", fmt::format("{} of swap are in use", gib(m.swap_used_bytes)),
                   "close other programs, or take a smaller model: weights that are swapped are read from the disk for "
                   "every token"});
  }
  if (m.group_memory_limit >= 0) {
    out.push_back({"memory_limit",
                   fmt::format("the control group allows {} of {}", gib(m.group_memory_limit), gib(m.memory_bytes)),
                   "give the container or service more memory if models do not fit"});
  }
  int64_t largest = 0;
  for (const DoctorModel& model : models) largest = std::max(largest, std::max(model.bytes, model.needs_bytes));
  if (m.address_space_limit >= 0 && m.address_space_limit < largest + kGiB) {
    out.push_back({"address_space_limit",
                   fmt::format("ulimit -v is {}; the largest model needs {}", gib(m.address_space_limit), gib(largest)),
                   "ulimit -v unlimited"});
  }
  for (const DoctorModel& model : models) {
    if (!model.problem.empty() || model.fits) continue;
    out.push_back(
        {"does_not_fit",
         fmt::format("{} needs {}; {} are available", model.name, gib(model.needs_bytes), gib(m.available_bytes)),
         "a smaller quantisation, a smaller context (-c), or q8_0 keys and values (-ctk q8_0 -ctv q8_0)"});
  }
}

void look_at_files(const std::vector<DoctorStore>& stores, const std::vector<DoctorModel>& models,
                   const std::vector<std::string>& partials, std::vector<DoctorFinding>& out) {
  for (const DoctorStore& store : stores) {
    if (!store.network_disk.empty() && store.n_models > 0) {
      out.push_back({"network_disk",
                     fmt::format("{} is on a network's disk ({})", store.folder.path, store.network_disk),
                     "copy models to a local disk: starts wait for the network otherwise"});
    }
    if (store.folder.kind == StoreKind::assay && store.free_bytes >= 0 && store.free_bytes < 2 * kGiB) {
      out.push_back({"little_room", fmt::format("{} has room for {}", store.folder.path, gib(store.free_bytes)),
                     "assay rm what is not needed, or set ASSAY_MODELS to a folder on another disk"});
    }
  }
  for (const DoctorModel& model : models) {
    if (!model.problem.empty())
      out.push_back({"unusable_file", fmt::format("{}: {}", model.name, model.problem),
                     "a file that was cut or damaged: fetch it again (assay pull); an architecture that is not served: "
                     "another model"});
  }
  for (const std::string& partial : partials) {
    out.push_back({"partial_file", fmt::format("{} is what an interrupted pull left", partial),
                   "the same `assay pull` goes on with it; `assay rm` and its name removes it"});
  }
  if (models.empty())
    out.push_back({"no_models", "there are no models in any store", "assay pull smollm2 fetches a small one"});
}

}  // namespace

std::vector<DoctorFinding> find_mistakes(const MachineFacts& machine, const std::vector<DoctorStore>& stores,
                                         const std::vector<DoctorModel>& models,
                                         const std::vector<std::string>& partials, int64_t n_threads) {
  std::vector<DoctorFinding> findings;
  look_at_processor(machine, n_threads, findings);
  look_at_memory(machine, models, findings);
  look_at_files(stores, models, partials, findings);
  return findings;
}

}  // namespace assay::doctor
