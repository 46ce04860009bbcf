// Schemas, patterns and grammars: whatever the bytes are, they are compiled or refused with an Error, and what was
// compiled reads any text.
#include <cstdint>
#include <string_view>

#include "assay/constraint.h"
#include "assay/error.h"
#include "assay/utf8.h"
#include "constraint/pattern.h"
#include "target.h"

namespace {

template <class F>
void refused_or_not(const F& f) {
  try {
    f();
  } catch (const assay::Error&) {
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(constraint) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refused_or_not([&] { assay::Constraint::from_schema(text)->accepts(text); });
  refused_or_not([&] { assay::Constraint::from_grammar(text)->accepts(text); });
  if (!assay::find_invalid_utf8(text)) {
    refused_or_not([&] { assay::constraint::parse_pattern(text); });
  }
  return 0;
}
