// A context's cancel hook for as long as something runs.
#pragma once

#include <functional>

#include "assay/context.h"

namespace assay::engine {

// Hands the hook to the context, and takes it out again whatever is thrown.
class CancelScope {
 public:
  CancelScope(Context& context, const std::function<bool()>& cancelled) : context_(context) { context_.set_cancel(cancelled); }
  ~CancelScope() { context_.set_cancel({}); }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  Context& context_;
};

}  // namespace assay::engine
