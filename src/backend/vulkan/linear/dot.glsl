// Four signed bytes times four, summed: by the device's instruction where ASSAY_OPERATION has bit 0 (VK_KHR_shader_integer_dot_product), else byte by byte.
#ifndef ASSAY_DOT_GLSL
#define ASSAY_DOT_GLSL

#if (ASSAY_OPERATION & 1) != 0
// OpSDot of packed bytes (SPIR-V 1.6, section 3.42.13; capabilities DotProduct and DotProductInput4x8BitPacked).
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format);
int dot_of(uint a, uint b) { return packed_dot(a, b, 0); }
#else
int dot_of(uint a, uint b) {
  return bitfieldExtract(int(a), 0, 8) * bitfieldExtract(int(b), 0, 8) + bitfieldExtract(int(a), 8, 8) * bitfieldExtract(int(b), 8, 8) +
         bitfieldExtract(int(a), 16, 8) * bitfieldExtract(int(b), 16, 8) + (int(a) >> 24) * (int(b) >> 24);
}
#endif
int dot_of(uvec4 a, uvec4 b) { return dot_of(a.x, b.x) + dot_of(a.y, b.y) + dot_of(a.z, b.z) + dot_of(a.w, b.w); }

#endif
