// The faults that the engine of this folder can be given, each named after what it does. Which rows of the catalogue
// each stands for: catalogue.cpp.
#pragma once

namespace assay::faults {

enum class Fault {
  none,

  // Decoding of weights (plain_formats.cpp)
  k_scales_high,        // Q4_K, Q5_K: scales and minima of sub-blocks 4..7 miss their top two bits
  k_min_sign,           // Q4_K, Q5_K: the minimum is added
  k_scales_over_63,     // Q4_K, Q5_K: 6-bit scales taken as fractions of 63
  nibbles_interleaved,  // Q4_0, Q4_1, Q4_K: low and high nibble are neighbours
  q6_k_sequential,      // Q6_K: elements in the order of the bytes
  q2_k_scale_lanes,     // Q2_K: scales of sub-blocks go to the wrong lanes
  k_nibble_group,       // Q4_K: the byte's index lacks the quarter it lies in
  row_stride,  // rows of a quantised matrix begin columns blocks apart, as if a block held one element; zeros beyond
               // the tensor

  // Embedding
  embed_column,   // a column of the table in place of the row
  vocab_assumed,  // ids from 256 on are taken for the last of an assumed vocabulary

  // Norms
  layer_norm,  // mean and variance in place of the root mean square
  gpt_graph,   // a Llama file run as a GPT: that norm, GELU and no rotation
  eps_1e_6,    // hard-coded

  // Matrix products (plain_linear.cpp)
  weights_in_out,         // [outputs][inputs] read as [inputs][outputs]
  result_transposed,      // m and n exchanged: written [outputs][tokens]
  k_permuted_by_n_heads,  // K rows re-ordered for RoPE with the number of query heads
  qk_not_permuted,        // Q and K rows left in the order of the training framework
  head_random,            // a tied head is not tied and keeps what memory held
  head_tied,              // the embedding serves as head though the file has one
  head_tail_zero,         // rows beyond a multiple of 64 belong to no shard
  bias_dropped,           // of attention's projections
  odd_rows_lost,          // a partial tile of 64 rows reads out of bounds, where the device gives zeros
  row_tail_nan,           // lanes of a row's tail hold what memory held
  precision_bf16,         // products of several tokens in bfloat16
  int8_whole_row,         // 8-bit activations with one scale a row, though floats are declared
  activation_scale_twice,
  quantiser_quarter_block,  // the activations' scale comes from the first quarter of a block: one register of four
  half_block_dropped,       // of two blocks the last 16 values
  q4_0_dp4a,                // Q4_0's integer kernel: interleaved nibbles, and a sum of activations without its scale
  maddubs_saturates,        // Q8_0's integer kernel: activations + 128 as unsigned bytes, pairs summed in 16 bits
  sign_of_minus_128,        // Q6_K's integer kernel: -(-128) in 8 bits
  block_sum_f16,            // Q4_1's integer kernel: a block's sum of activations in half precision

  // Rotation
  rope_pairing,            // the other of (2i, 2i + 1) and (i, i + d/2)
  rope_theta_1e4,          // hard-coded
  rope_scaling_ignored,    // llama3's factors are not read
  rope_magnitude_ignored,  // YaRN's attention factor
  rope_half_dims,          // only half of the rotated dimensions
  rope_start_zero,         // positions count from each run's beginning
  rope_q_start_zero,       // the same for queries alone
  rope_k_plus_one,         // key positions one too large
  rope_retained_rows,      // the run's first position is the number of rows that a window retains
  rope_batch_offset,       // in a run of several sequences the offset is moved by the cache's update

  // Attention and cache
  no_causal_mask,
  n_kv_heads_is_n_heads,
  softmax_uniform,       // no maximum subtracted, and uniform shares where the sum overflows
  cache_layout,          // q8_0 keys stored re-packed, read as plain
  cache_scale,           // q8_0 keys and values read without the half-precision scale's rounding, at d = amax / 128
  scores_f16,            // summed in half precision, scaled afterwards
  packed_strides,        // the cache's stride between heads taken from the rows in use
  kv_heads_tiled,        // head h reads KV head h % n_kv_heads
  softcap_before_scale,  // scores are capped first, then scaled
  window_ignored,
  window_plus_one,
  scale_of_d_model,      // 1 / sqrt(d_model / n_heads)
  first_position_short,  // the empty cache's shortcut copies V without repeating its heads
  decode_sees_itself,    // a run of one token sees no earlier one
  ring_off_by_one,       // a resumed prefill finds earlier rows one place further
  choice_one_too_few,    // an indexer chooses one key less than it should
  choice_ties_high,      // among equal keys the later one: another order, no fault
  stale_cells,           // cells that were truncated are seen again, up to the end of their block

  // Experts (plain_experts.cpp)
  route_bias_in_weight,    // the bias that serves to choose is in the weight too
  route_best_passed_over,  // ranks counted from the second
  route_ties_high,         // among equals the higher expert first: another order, no fault
  experts_unweighted,      // results added as they are

  // States (plain_states.cpp)
  state_not_reset,       // a sequence that is cut goes on from the state that it had
  conv_tail_off_by_one,  // what a convolution kept lies one place too far back when the next run begins

  // Middle of the feed-forward layer, residual stream, head
  gelu_for_silu,
  gate_up_swapped,
  layer_boundary,  // the second layer gets a torn copy of the first one's result
  racy_input,      // now and then an output head reads its input before it is whole
  logits_softcap,  // 30 tanh(x / 30), which the model does not have
};

}  // namespace assay::faults
