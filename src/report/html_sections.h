// The sections of the HTML report that are words and tables. Each gives "" where there is nothing to say.
#pragma once

#include <string>

#include "assay/verify.h"
#include "assay/verify_page.h"

namespace assay::verify {

std::string banner_section(const VerifyReport& report);  // the verdict
std::string facts_section(const VerifyReport& report,
                          const VerifyPageFacts& facts);  // the model, what was verified, when and where
std::string chain_section(const VerifyReport& report);    // the stages as a strip, then what each found
std::string failure_section(const VerifyReport& report,
                            const VerifyPageFacts& facts);  // the first failure and its causes
std::string tokens_section(const VerifyReport& report, const VerifyPageFacts& facts);  // would the error turn a choice?
std::string against_section(const VerifyReport& report, const VerifyPageFacts& facts);  // several sources
std::string ops_section(const VerifyReport& report);                                    // every op, folded

}  // namespace assay::verify
