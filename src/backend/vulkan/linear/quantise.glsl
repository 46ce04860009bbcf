// Makes a twin's row (linear/twin.glsl) by workgroups of 256 or 512 invocations, each with 4 elements at a time: 1024 or 2048 in one go.
//
//   invocation 0 | 1 | 2 | 3 |  a group of 16: sums       8 (A32) or 64 (A256) invocations: a block
#ifndef ASSAY_QUANTISE_GLSL
#define ASSAY_QUANTISE_GLSL
#include "linear/twin.glsl"
#include "num/steps.glsl"

layout(constant_id = 10) const uint kBlock = 256u;  // of the twin; 0: there is none
layout(constant_id = 11) const uint kPlanes = 2u;

shared uint largest[64];                // of blocks
shared int sums_q[128], sums_l[128];    // of groups

#endif
