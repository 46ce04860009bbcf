// What this machine can run, and what stands in its way: the facts behind `assay doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "assay/store.h"

namespace assay {

struct DoctorOptions {
  std::vector<StoreFolder> stores;
  int64_t n_threads = 0;          // that the user's settings ask for; 0: none
  bool measure_bandwidth = true;  // takes about a second, and 128 MiB a thread
  std::string root;               // where /proc and /sys are looked for; empty: here. For tests
};

struct MachineFacts {
  std::vector<std::string> features;  // of the processor, those that matter to kernels
  std::vector<std::string> kernels;   // sets that run here; the last one is used
  int n_cores = 0, n_processors = 0;  // physical cores and processors that this process may use
  int n_processors_online = 0;        // of the machine
  int64_t memory_bytes = 0, available_bytes = 0;
  int64_t swap_bytes = 0, swap_used_bytes = 0;
  double read_bandwidth = 0;  // bytes per second; 0: not measured
  DeviceList devices;
  bool has_nvidia_driver = false;
  int64_t address_space_limit = -1, locked_memory_limit = -1, open_files_limit = -1;  // ulimit; -1: none
  int64_t group_memory_limit = -1;                                                    // of the control group; -1: none
};

struct DoctorStore {
  StoreFolder folder;
  bool exists = false;
  std::string network_disk;                          // the file system's name where it is one
  int64_t n_models = 0, bytes = 0, free_bytes = -1;  // free: -1 where the folder does not exist
};

struct DoctorModel {
  std::string name, architecture, weights_type;
  int64_t bytes = 0;
  int64_t needs_bytes = 0;  // with the default context; 0 where it cannot be loaded
  bool fits = false;
  double tokens_per_second =
      0;                // at most, one token at a time on the CPU: bandwidth by the bytes of its weights; 0: not known
  std::string problem;  // why it cannot be used
};

// Something to do.
struct DoctorFinding {
  std::string rule;  // "swap_in_use", "unusable_file", ...
  std::string what, advice;
};

struct DoctorReport {
  MachineFacts machine;
  std::vector<DoctorStore> stores;
  std::vector<DoctorModel> models;
  std::vector<DoctorFinding> findings;
  std::string to_text() const;  // for people; ends with a newline
  std::string to_json() const;  // one object; ends with a newline
};

// Looks at the machine and at each model of the stores. What cannot be found out is left out, or is a finding; it fails
// for no model's sake.
DoctorReport examine(const DoctorOptions& options);

}  // namespace assay
