// See record.h.
#include "ops/plan/record.h"

#include <stdexcept>
#include <string>

namespace assay::ops {

void Record::refuse(const char* meant) const {
  throw std::logic_error(std::string("a record of ") + kind() + " where one of " + meant + " was meant");
}

}  // namespace assay::ops
