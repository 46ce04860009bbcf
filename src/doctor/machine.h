// What the operating system tells of this machine, by its files below a root.
#pragma once

#include <string>

#include "assay/doctor.h"

namespace assay::doctor {

// All but the bandwidth and the devices. root: "" is this machine.
MachineFacts read_machine(const std::string& root);

// The name of a network's file system by the number that statfs gives it; empty for disks.
std::string network_file_system(long type);

}  // namespace assay::doctor
