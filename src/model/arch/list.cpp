// See list.h. A test fails when a file of this folder is missing here.
#include "model/arch/list.h"

namespace assay::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", arch::llama},
    {"gemma3", arch::gemma3},
};

}  // namespace

std::span<const Architecture> architectures() noexcept { return kArchitectures; }

}  // namespace assay::model
