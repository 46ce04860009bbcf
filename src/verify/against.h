// verify --against: the same tokens through several sources (ourselves, dumps of other engines,
// other modes of our own), each op of each judged by its own declared rounding; who is the outlier;
// and where two that promise the same bits part.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/verify.h"
#include "verify/stages/stages.h"
#include "verify/subject.h"

namespace assay::verify {

struct AgainstFindings {
  VerifyStage stage;                   // "against"
  std::vector<SourceFigures> sources;  // ourselves first, then as they were asked for
};

// against: paths of dumps, or modes (modes.h); `context` is what the subject was made with, which
// the modes change in one thing each. All run the tokens and batches of the first dump; without
// one, the probe's. Error(bad_request) for what is neither a file nor a mode, and for a dump of
// other shapes; Error(io, bad_file) for a dump that cannot be read. Other numbers are findings.
AgainstFindings check_against(const Subject& subject, const ContextOptions& context,
                              std::span<const std::string> against, const StageRun& run);

// Throws what check_against would for its sources, before any work is done.
void require_sources(const Subject& subject, const ContextOptions& context, std::span<const std::string> against);

}  // namespace assay::verify
