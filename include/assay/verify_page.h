// A VerifyReport as an HTML page, with what belongs to the run and not to the report: when, where, of which bytes.
#pragma once

#include <functional>
#include <string>

#include "assay/tokenizer.h"
#include "assay/verify.h"

namespace assay {

struct VerifyPageFacts {                           // what is empty is left out
  std::string date;                                // "2026-11-26 22:57:09 UTC"
  std::string machine;                             // "AMD EPYC, 2 processors"
  std::string program;                             // "assay 0.1.0 (7065752)"
  std::string sha256;                              // of the model's file
  bool quick = false;                              // VerifyOptions::quick
  std::function<std::string(TokenId)> token_text;  // shown beside ids
};

// One file, nothing loaded from elsewhere. VerifyReport::to_html() is the page without these.
std::string verify_page(const VerifyReport& report, const VerifyPageFacts& facts);

}  // namespace assay
