// decode_linears of decode.h: the kernel of a row of the table of decode's kernels (kernels/decode_table.h).
#include <iterator>
#include <span>

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/kernels/decode_table.h"

namespace assay::backend::cuda {
namespace {

struct Call {
  const DecodeSource& source;
  std::span<const LinearTask> linears;
  const DecodeGate& gate;
  int planes;
  const Queue& queue;
};

void superblocks(const Call& c) { decode_linears_256(c.source, c.linears, c.gate, c.planes, c.queue); }
void blocks(const Call& c) { decode_linears_32(c.source, c.linears, c.gate, c.planes, c.queue); }
void floats(const Call& c) { decode_linears_float(c.source, c.linears, c.gate, c.queue); }
template <int kStages>
void halves(const Call& c) {
  fast_decode_linears(c.source, c.linears, c.gate, kStages, c.queue);
}

constexpr void (*kLaunch[])(const Call&) = {superblocks, blocks, floats, halves<DecodeHalvesPlaces::kStages>,
                                            halves<DecodeHalvesPlaces::kStagesShort>};  // as DecodeKernel counts
static_assert(std::size(kLaunch) == kNDecodeProducts);

}  // namespace

void decode_linears(DecodeKernel kernel, const DecodeSource& source, std::span<const LinearTask> linears,
                    const DecodeGate& gate, int planes, const Queue& queue) {
  kLaunch[static_cast<size_t>(kernel)]({source, linears, gate, planes, queue});
}

}  // namespace assay::backend::cuda
