// What to do about the facts.
#pragma once

#include <vector>

#include "assay/doctor.h"

namespace assay::doctor {

// partials: files of interrupted pulls.
std::vector<DoctorFinding> find_mistakes(const MachineFacts& machine, const std::vector<DoctorStore>& stores,
                                         const std::vector<DoctorModel>& models,
                                         const std::vector<std::string>& partials, int64_t n_threads);

}  // namespace assay::doctor
