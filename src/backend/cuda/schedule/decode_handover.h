// What decode groups hand one another without a kernel of its own between them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/schedule/decode_groups.h"
#include "backend/cuda/schedule/decode_products.h"

namespace assay::backend::cuda {

// Of a shard: a gather between kernels that send its row as they make it and others that wait for it becomes a member
// of the group that makes the row.
void find_sends(const DecodeProducts& products, std::vector<DecodeGroup>& groups);

// Of a shard: products that can be made of its own columns alone, between kernels that hand them over by themselves.
// After find_sends. Returns their ops.
std::vector<int32_t> find_columns(const DecodeProducts& products, std::vector<DecodeGroup>& groups);

// A product whose row is only added to one of an earlier group, by the norm of the next group, adds it itself.
void find_adds(const DecodeProducts& products, std::vector<DecodeGroup>& groups);

// Attention whose reader starts with few blocks.
void find_narrow_readers(const DecodeProducts& products, std::vector<DecodeGroup>& groups);

// Per value: whether a group other than the one that makes it reads it, or a run's caller is given it. of_member: per
// fusion group, the decode group it is in.
std::vector<bool> find_read_by_others(const DecodeProducts& products, const std::vector<DecodeGroup>& groups,
                                      const std::vector<int32_t>& of_member);

}  // namespace assay::backend::cuda
