// A VerifyReport for people, with what belongs to the run and not to the report: the text of tokens; on an HTML page
// also when, where, of which bytes.
#pragma once

#include <functional>
#include <string>

#include "assay/tokenizer.h"
#include "assay/verify.h"

namespace assay {

using TokenTexts = std::function<std::string(TokenId)>;  // quoted; empty where there is none

struct VerifyPageFacts {  // what is empty is left out
  std::string date;       // "2026-11-26 22:57:09 UTC"
  std::string machine;    // "AMD EPYC, 2 processors"
  std::string program;    // "assay 0.1.0 (7065752)"
  std::string sha256;     // of the model's file
  bool quick = false;     // VerifyOptions::quick
  TokenTexts token_text;  // shown beside ids
};

// One file, nothing loaded from elsewhere. VerifyReport::to_html() is the page without these.
std::string verify_page(const VerifyReport& report, const VerifyPageFacts& facts);

// VerifyReport::outcome_text() with texts beside ids.
std::string verify_outcome(const VerifyReport& report, const TokenTexts& token_text);

}  // namespace assay
