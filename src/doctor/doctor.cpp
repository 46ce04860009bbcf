// Gathers what assay/doctor.h tells; report.cpp prints it.
#include "assay/doctor.h"

#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "assay/bench.h"
#include "assay/inspect.h"
#include "doctor/findings.h"
#include "doctor/machine.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

DoctorStore look_at_store(const StoreFolder& folder, const std::vector<StoredModel>& models) {
  DoctorStore store;
  store.folder = folder;
  std::error_code unknown;
  store.exists = fs::is_directory(folder.path, unknown);
  struct statfs type {};
  if (store.exists && ::statfs(folder.path.c_str(), &type) == 0)
    store.network_disk = doctor::network_file_system(static_cast<long>(type.f_type));
  struct statvfs room {};
  if (store.exists && ::statvfs(folder.path.c_str(), &room) == 0)
    store.free_bytes = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
  const std::string prefix = folder.path.ends_with('/') ? folder.path : folder.path + "/";
  for (const StoredModel& model : models) {
    if (model.store != folder.kind || !model.path().starts_with(prefix)) continue;
    ++store.n_models;
    store.bytes += model.bytes;
  }
  return store;
}

DoctorModel look_at_model(const StoredModel& stored, double bandwidth) {
  const ModelFacts facts = read_facts(stored);
  DoctorModel model;
  model.name = stored.name;
  model.bytes = stored.bytes;
  model.architecture = facts.architecture;
  model.weights_type = facts.weights_type;
  model.problem = facts.problem;
  if (!model.problem.empty()) return model;
  const Inspection inspection = inspect(stored.path());
  if (!inspection.problems.empty()) model.problem = inspection.problems.front().message;
  if (inspection.memory.empty()) return model;
  const MemoryPlan& plan = inspection.memory.front();
  model.needs_bytes = plan.total_bytes();
  model.fits = plan.fits();
  if (bandwidth > 0 && plan.figures.weights_bytes > 0)
    model.tokens_per_second = bandwidth / static_cast<double>(plan.figures.weights_bytes);
  return model;
}

std::vector<std::string> partials_in(const std::vector<StoreFolder>& folders) {
  std::vector<std::string> partials;
  for (const StoreFolder& folder : folders) {
    if (folder.kind != StoreKind::assay) continue;
    std::error_code problem;
    for (fs::directory_iterator at(folder.path, problem); !problem && at != fs::directory_iterator();
         at.increment(problem)) {
      if (at->path().filename().string().ends_with(".gguf.partial")) partials.push_back(at->path().string());
    }
  }
  std::sort(partials.begin(), partials.end());
  return partials;
}

}  // namespace

DoctorReport examine(const DoctorOptions& options) {
  constexpr int64_t kBandwidthBytesPerThread = int64_t{128} << 20;
  DoctorReport report;
  report.machine = doctor::read_machine(options.root);
  MachineFacts& machine = report.machine;
  machine.devices = list_devices();
  const bool has_room = machine.available_bytes > 2 * machine.n_cores * kBandwidthBytesPerThread;
  if (options.measure_bandwidth && has_room) machine.read_bandwidth = read_bandwidth(machine.n_cores);
  const std::vector<StoredModel> models = ModelStores(options.stores).list().models;
  for (const StoreFolder& folder : options.stores) report.stores.push_back(look_at_store(folder, models));
  for (const StoredModel& model : models) report.models.push_back(look_at_model(model, machine.read_bandwidth));
  report.findings =
      doctor::find_mistakes(machine, report.stores, report.models, partials_in(options.stores), options.n_threads);
  return report;
}

}  // namespace assay
