// See catalogue.h.
#include "faulty/catalogue.h"

#include "faulty/faulty_subject.h"

namespace assay::faults {
namespace {

using ops::CacheType;

// clang-format off

// R: the bugs of one project's Llama engine, commit by commit.
std::vector<Row> rows_r() {
  return {
      {.id = "R1", .source = "rustorch f6d7b019", .what = "Q4_K's 6-bit scales unpacked wrongly from sub-block 4 on",
       .injected = "decoder", .fault = Fault::k_scales_high, .stage = "dequantisation", .op = "blk.0.attn_q",
       .named_by = {"decode_k_scales"}},
      {.id = "R2", .source = "rustorch 79230f39, f6d7b019", .what = "Q4_K's minimum added", .injected = "decoder",
       .fault = Fault::k_min_sign, .stage = "dequantisation", .op = "blk.0.attn_q", .named_by = {"decode_min_sign"}},
      {.id = "R3", .source = "rustorch 213b9180", .what = "Q4_K's scales divided by 63", .injected = "decoder",
       .fault = Fault::k_scales_over_63, .stage = "dequantisation", .op = "blk.0.attn_q", .named_by = {"decode_scales_63"}},
      {.id = "R4", .source = "rustorch 5ea4351f", .what = "nibbles taken low, high, low, high", .injected = "decoder of Q4_0",
       .model = blocks_32, .fault = Fault::nibbles_interleaved, .stage = "dequantisation", .op = "blk.0.attn_q",
       .named_by = {"decode_nibbles"}},
      {.id = "R5", .source = "rustorch 5b0d5bb8", .what = "Q6_K read one after another", .injected = "decoder",
       .fault = Fault::q6_k_sequential, .stage = "dequantisation", .op = "token_embd", .named_by = {"decode_q6_order"}},
      {.id = "R6", .source = "rustorch 6b22003d", .what = "Llama file run as a GPT",
       .injected = "engine with LayerNorm, GELU and no rotation", .fault = Fault::gpt_graph, .op = "blk.0.attn_norm",
       .named_by = {"norm_layer_norm"}},
      {.id = "R7", .source = "rustorch 99136909, 19fd0434", .what = "as many KV heads as heads", .injected = "attention",
       .fault = Fault::n_kv_heads_is_n_heads, .op = "blk.0.attention", .named_by = {"attention_heads"}},
      {.id = "R8", .source = "rustorch 21155634", .what = "no causal mask", .injected = "attention", .fault = Fault::no_causal_mask,
       .op = "blk.0.attention", .named_by = {"attention_mask"}},
      {.id = "R9", .source = "rustorch 213b9180, 2c1222f8", .what = "cache misused: a decode step sees no earlier token",
       .injected = "attention", .fault = Fault::decode_sees_itself, .op = "blk.0.attention",
       .named_by = {"attention_batch", "kv_not_stored"}},
      {.id = "R10", .source = "rustorch adb046de, 9aeca442, 22a94650, baf23997", .what = "embedding's column in place of its row",
       .injected = "embedding", .fault = Fault::embed_column, .op = "token_embd", .named_by = {"embed_column"}},
      {.id = "R11", .source = "rustorch 862157a1, 1a43ae18", .what = "no space prefix, then all white space made a blank",
       .injected = "encode", .change_subject = newline_as_space, .stage = "tokenizer",
       .named_by = {"newlines and tabs are taken as blanks"}},
      {.id = "R12", .source = "rustorch d4d0b139", .what = "RoPE begins at 0 at each step", .injected = "rotation",
       .fault = Fault::rope_start_zero, .op = "blk.0.attn_q_rope", .named_by = {"rope_position_start"}},
      {.id = "R13", .source = "rustorch e2188091, c7bd3d3f", .what = "rope base hard-coded to 1e4", .injected = "rotation",
       .fault = Fault::rope_theta_1e4, .op = "blk.0.attn_q_rope", .named_by = {"rope_theta"}},
      {.id = "R14", .source = "rustorch 468a0153", .what = "LayerNorm for RMSNorm", .injected = "norm", .fault = Fault::layer_norm,
       .op = "blk.0.attn_norm", .named_by = {"norm_layer_norm"}},
      {.id = "R15", .source = "rustorch", .what = "GELU for SiLU", .injected = "gate", .fault = Fault::gelu_for_silu,
       .op = "blk.0.ffn_act", .named_by = {"gate_activation"}},
      {.id = "R16", .source = "rustorch e1616fdb", .what = "gate and up swapped", .injected = "gate", .fault = Fault::gate_up_swapped,
       .op = "blk.0.ffn_act", .named_by = {"gate_swapped"}},
      {.id = "R17", .source = "rustorch", .what = "weights [out][in] read as [in][out]", .injected = "matrix product",
       .fault = Fault::weights_in_out, .op = "blk.0.attn_q", .named_by = {"weight_layout"}},
      {.id = "R18", .source = "rustorch 3faff908", .what = "overflow hidden: softmax falls back to equal shares", .injected = "attention",
       .model = large_scores, .fault = Fault::softmax_uniform, .op = "blk.0.attention",
       .named_by = {"attention_shares", "attention_overflow"}},
      {.id = "R19", .source = "rustorch e1616fdb", .what = "m and n of a product exchanged", .injected = "matrix product",
       .fault = Fault::result_transposed, .op = "blk.0.attn_q", .named_by = {"layout", "weight_layout"}},
      {.id = "R20", .source = "rustorch dbfc1152", .what = "vocabulary size from a missing key", .injected = "embedding",
       .fault = Fault::vocab_assumed, .op = "token_embd", .named_by = {"embed_vocabulary"}},
  };
}

// C1: tokenizer, template, sampler, text.
std::vector<Row> rows_text() {
  return {
      {.id = "C1", .source = "llama.cpp#7476", .what = "old tokenizer metadata in the file",
       .injected = "encode without the vocabulary's scores", .change_subject = merge_without_scores, .stage = "tokenizer",
       .named_by = {"scores are not read"}},
      {.id = "C2", .source = "llama.cpp#6914, #6920", .what = "pre-tokenizer's pattern missing", .injected = "encode", .model = blocks_32,
       .change_subject = split_by_default, .stage = "tokenizer",
       .named_by = {"gpt-2"}},
      {.id = "C3", .source = "llama.cpp#7724", .what = "another model's pre-tokenizer", .injected = "encode", .model = blocks_32,
       .change_subject = split_as_another, .stage = "tokenizer",
       .named_by = {"qwen2"}},
      {.id = "C4", .source = "llama.cpp#23252, llama.cpp#6104", .what = "normaliser drifts from the definition", .injected = "encode",
       .change_subject = normalise_whitespace, .stage = "tokenizer",
       .named_by = {"runs of blanks are joined"}},
      {.id = "C5", .source = "llama.cpp#4081, llama.cpp#8584, llama.cpp#3503; transformers#25224, #29453", .what = "prefix space dropped",
       .injected = "encode", .change_subject = no_space_prefix, .stage = "tokenizer",
       .named_by = {"no blank is put before a text"}},
      {.id = "C6", .source = "InfiniLM#388; llama.cpp#15086, #15326; llama-cpp-python#1501", .what = "BOS twice",
       .injected = "prompt of a conversation", .change_subject = bos_twice, .stage = "template",
       .named_by = {"twice, which shifts every position"}},
      {.id = "C7", .source = "llama-cpp-python#1537", .what = "BOS missing", .injected = "prompt of a conversation",
       .change_subject = bos_missing, .stage = "template",
       .named_by = {"needs BOS"}},
      {.id = "C8", .source = "ollama#3759; llama.cpp#6772; textgen#5885", .what = "end of turn does not stop",
       .injected = "end of generation", .change_subject = end_of_turn_unknown, .stage = "tokenizer",
       .named_by = {"does not end a generation"}},
      {.id = "C9", .source = "candle-vllm#158, #177", .what = "template engine drops constructs it does not know", .injected = "render",
       .change_subject = template_without_filters, .stage = "template"},
      {.id = "C10", .source = "ferrox#124; exo#1691; dynamo#12630; mlx-vlm#1778", .what = "U+FFFD for emoji and CJK",
       .injected = "streamed text", .change_subject = characters_by_token, .stage = "detokenizer",
       .named_by = {"token by token it is"}},
      {.id = "C11", .source = "llamafarm#818", .what = "temperature 0 is not greedy", .injected = "sampler",
       .change_subject = greedy_draws, .stage = "sampler",
       .named_by = {"temperature 0: "}},
      {.id = "C12", .source = "Camelid#534", .what = "temperature before top-p", .injected = "sampler",
       .change_subject = temperature_first, .stage = "sampler",
       .named_by = {"top-p 0.6, then temperature 3"}},
      {.id = "C13", .source = "llama.cpp#7381, #4668", .what = "seed ignored", .injected = "sampler", .change_subject = seed_ignored,
       .stage = "sampler",
       .named_by = {"another seed gives the same draws"}},
      {.id = "C14", .source = "vllm#5639", .what = "penalties depend on other requests", .injected = "sampler",
       .change_subject = penalties_of_neighbours, .stage = "sampler"},
      {.id = "C15", .source = "TensorRT-Edge-LLM#211", .what = "same random draw at each step", .injected = "sampler",
       .change_subject = same_draw_each_step, .stage = "sampler",
       .named_by = {"the generator stands still"}},
      {.id = "C16", .source = "ik_llama.cpp#2398; llama.cpp#7109", .what = "penalties parsed and unused", .injected = "sampler",
       .change_subject = penalties_unused, .stage = "sampler",
       .named_by = {"a repeat penalty of 100"}},
      {.id = "C17", .source = "whisper.cpp#2186, #3495; candle#472", .what = "a control token slips into the prompt",
       .injected = "prompt of a conversation", .change_subject = control_token_added, .stage = "template"},
      {.id = "C18", .source = "vllm#7880, #12230", .what = "head's last shard lost",
       .injected = "output head: rows beyond a multiple of 64 are zero", .fault = Fault::head_tail_zero, .op = "output",
       .named_by = {"tail_rows", "shards"}},
  };
}

// C2: loader, conversion, dequantisation.
std::vector<Row> rows_loader() {
  return {
      {.id = "C19", .source = "llama.cpp#3018, #3364; TinyLlama#24; transformers#31788", .what = "K permuted with n_heads for n_kv_heads",
       .injected = "rows of K", .fault = Fault::k_permuted_by_n_heads, .op = "blk.0.attn_k", .named_by = {"rows_permuted"}},
      {.id = "C20", .source = "llama.cpp#22611", .what = "repacking skips the permutation of Q and K", .injected = "rows of Q and K",
       .fault = Fault::qk_not_permuted, .op = "blk.0.attn_q", .named_by = {"rows_permuted"}},
      {.id = "C21", .source = "candle#3410; llama2.c#286; imp#503; AiDotNet#2074; nanotron#427", .what = "RoPE pairs of the other kind",
       .injected = "rotation", .fault = Fault::rope_pairing, .op = "blk.0.attn_q_rope", .named_by = {"rope_pairing"}},
      {.id = "C22", .source = "tinygrad#13796; sglang#1508; vllm#53019; aprender#2309", .what = "tied head not tied",
       .injected = "output head of a tied model: what memory held", .model = blocks_32, .fault = Fault::head_random, .op = "output"},
      {.id = "C23", .source = "TensorRT-LLM#13664", .what = "head tied though the file has one", .injected = "output head",
       .fault = Fault::head_tied, .op = "output", .named_by = {"tied_head"}},
      {.id = "C24", .source = "aprender#1924", .what = "Q2_K's scales to the wrong lanes", .injected = "decoder",
       .fault = Fault::q2_k_scale_lanes, .stage = "dequantisation", .op = "blk.0.ffn_up", .named_by = {"decode_scale_lanes"}},
      {.id = "C25", .source = "1bit-MONSTER#153", .what = "nibble index lacks the group's term", .injected = "decoder of Q4_K",
       .fault = Fault::k_nibble_group, .stage = "dequantisation", .op = "blk.0.attn_q", .named_by = {"decode_nibbles"}},
      {.id = "C26", .source = "imp#722", .what = "Q4_0 wrong only in the integer kernel",
       .injected = "kernel of Q4_0 x int8: nibbles interleaved, a sum lacks its scale", .model = blocks_32, .fault = Fault::q4_0_dp4a,
       .activation_bits = 8, .op = "blk.0.attn_q", .named_by = {"offset_sum_unscaled"}},
      {.id = "C27", .source = "llama.cpp#876", .what = "SIMD quantiser worse than a coarser format",
       .injected = "run-time quantiser of activations: scale from a quarter of the block (verify cannot know what a file was quantised from)",
       .model = blocks_32, .fault = Fault::quantiser_quarter_block, .activation_bits = 8, .op = "blk.0.attn_q",
       .named_by = {"quantiser_part_block"}},
      {.id = "C28", .source = "vllm#39407", .what = "activations' scale applied twice", .injected = "kernel", .model = blocks_32,
       .fault = Fault::activation_scale_twice, .activation_bits = 8, .op = "blk.0.attn_q", .named_by = {"activation_scale"}},
      {.id = "C29", .source = "llama.cpp#3298, #12863, #17431", .what = "tensor data in the other byte order", .injected = "file",
       .model = gemma, .change_file = tensor_bytes_swapped, .stage = "file", .named_by = {"big-endian"}},
      {.id = "C30", .source = "picolm#20", .what = "alignment ignored, bad head ratios accepted",
       .injected = "file laid out with 32 that declares 64", .change_file = alignment_ignored, .stage = "file",
       .named_by = {"alignment"}},
      {.id = "C31", .source = "llama.cpp#21397", .what = "row stride without the block size", .injected = "rows of quantised matrices",
       .fault = Fault::row_stride, .op = "blk.0.attn_q", .named_by = {"row_stride"}},
  };
}

// C3: kernels, instruction sets, devices.
std::vector<Row> rows_kernels() {
  return {
      {.id = "C32", .source = "aprender#3105", .what = "scale covers half of two blocks, 16 values dropped",
       .injected = "kernel of 32-wide formats", .model = blocks_32, .fault = Fault::half_block_dropped, .activation_bits = 8,
       .op = "blk.0.attn_q", .named_by = {"half_blocks"}},
      {.id = "C33", .source = "ik_llama.cpp#364", .what = "K cache packed for another instruction set", .injected = "q8_0 keys",
       .model = gemma, .fault = Fault::cache_layout, .cache = CacheType::q8_0, .op = "blk.0.attention", .named_by = {"kv_repacked"}},
      {.id = "C34", .source = "ik_llama.cpp#213", .what = "NaN where a row is no multiple of 128", .injected = "kernel's tail",
       .model = blocks_32, .fault = Fault::row_tail_nan, .op = "blk.0.attn_output", .named_by = {"tail_columns"}},
      {.id = "C35", .source = "ik_llama.cpp#427; oneDNN#717; onnxruntime#6004", .what = "int16 overflow in maddubs with offset 128",
       .injected = "kernel of Q8_0 x int8", .model = blocks_32, .fault = Fault::maddubs_saturates, .activation_bits = 8,
       .op = "blk.0.attn_k", .named_by = {"int16_saturation"}},
      {.id = "C36", .source = "ggml#1393", .what = "-(-128) overflows in the sign trick", .injected = "kernel of Q6_K x int8",
       .fault = Fault::sign_of_minus_128, .activation_bits = 8, .op = "blk.0.attn_v", .named_by = {"sign_of_minus_128"}},
      {.id = "C37", .source = "ik_llama.cpp#540; llama.cpp#21652", .what = "f16 overflow of a block's sum",
       .injected = "kernel of Q4_1 x int8", .model = large_activations, .fault = Fault::block_sum_f16, .activation_bits = 8,
       .op = "blk.0.ffn_down", .named_by = {"half_block_sum"}},
      {.id = "C38", .source = "llama.cpp#7805; transformers#33317; ik_llama.cpp#102; vllm#14126; ollama#5668",
       .what = "f16 overflow of K*Q", .injected = "attention's scores", .model = large_scores, .fault = Fault::scores_f16,
       .op = "blk.0.attention", .named_by = {"attention_overflow"}},
      {.id = "C39", .source = "llama.cpp#28956; ggml#386; llama.cpp#11281, #14683", .what = "strided cache view taken as packed",
       .injected = "cache", .fault = Fault::packed_strides, .op = "blk.0.attention", .named_by = {"kv_stride"}},
      {.id = "C40", .source = "llama.cpp#17108, #17106", .what = "reads out of bounds at odd shapes",
       .injected = "kernel's last tile of 64 rows: zeros", .model = blocks_32, .fault = Fault::odd_rows_lost, .op = "blk.0.attn_k",
       .named_by = {"tail_rows"}},
      {.id = "C41", .source = "ik_llama.cpp#2347", .what = "race: input read before it is whole",
       .injected = "output head, every third run", .fault = Fault::racy_input, .op = "output"},
      {.id = "C42", .source = "ik_llama.cpp#2317", .what = "another precision on some devices",
       .injected = "bfloat16 in products of several tokens", .fault = Fault::precision_bf16, .op = "blk.0.attn_q",
       .named_by = {"rounded", "activation_bits"}},
      {.id = "C43", .source = "aprender#2210", .what = "int8 kernel that a last-position check passes",
       .injected = "8 bits, one scale a row, floats declared", .fault = Fault::int8_whole_row, .op = "blk.0.attn_q",
       .named_by = {"activation_bits"}},
      {.id = "C44", .source = "ollama#7461, #8188; club-3090#274", .what = "copy between devices corrupted",
       .injected = "second layer's input: last quarter of every row lost", .fault = Fault::layer_boundary, .op = "blk.1.attn_norm",
       .named_by = {"norm_torn_input"}},
  };
}

// C4: attention, rotation, norm, feed-forward, cache.
std::vector<Row> rows_attention() {
  return {
      {.id = "C45", .source = "llama.cpp#8650, #8676; tiny-vllm#1; mlxcel#1355; ANEForge#58", .what = "llama3 rope scaling ignored",
       .injected = "rotation", .fault = Fault::rope_scaling_ignored, .op = "blk.0.attn_q_rope", .named_by = {"rope_scaling"}},
      {.id = "C46", .source = "exllamav3#259; vllm#46280; mlx-lm#1507; llama.cpp#17945", .what = "YaRN's attention factor lost",
       .injected = "rotation", .model = blocks_32, .fault = Fault::rope_magnitude_ignored, .op = "blk.0.attn_q_rope",
       .named_by = {"rope_magnitude"}},
      {.id = "C47", .source = "vllm#41185; transformers#32495", .what = "half of the rotary dimensions", .injected = "rotation",
       .fault = Fault::rope_half_dims, .op = "blk.0.attn_q_rope", .named_by = {"rope_dims"}},
      {.id = "C48", .source = "llama.cpp#2373, #2374, #2384; candle#271; tvm#15856", .what = "eps hard-coded to 1e-6", .injected = "norm",
       .fault = Fault::eps_1e_6, .op = "blk.0.attn_norm", .named_by = {"norm_eps"}},
      {.id = "C49", .source = "onnx#7274; jax-js#180; ONNXim#34; HipKittens#22; FreeToken#177", .what = "KV heads tiled, not repeated",
       .injected = "attention", .fault = Fault::kv_heads_tiled, .op = "blk.0.attention", .named_by = {"attention_heads"}},
      {.id = "C50", .source = "mlx-vlm#669; sglang#4823; mlxcel#405; mistral.rs#246", .what = "window ignored", .injected = "attention",
       .model = blocks_32, .fault = Fault::window_ignored, .op = "blk.0.attention", .named_by = {"attention_window"}},
      {.id = "C51", .source = "transformers#26792; mlx-lm#390; Megatron-Bridge#2656", .what = "window off by one",
       .injected = "attention", .model = blocks_32, .fault = Fault::window_plus_one, .op = "blk.0.attention",
       .named_by = {"attention_window"}},
      {.id = "C52", .source = "imp#688; vllm-metal#665; vllm#7425; llama.cpp#8197; unsloth-zoo#593", .what = "softcap on one path only",
       .injected = "logits of a model that has none", .fault = Fault::logits_softcap, .op = "output", .named_by = {"logits_softcap"}},
      {.id = "C53", .source = "llama.cpp#8197", .what = "scale of d_model / n_heads for head_dim", .injected = "attention",
       .fault = Fault::scale_of_d_model, .op = "blk.0.attention", .named_by = {"attention_scale"}},
      {.id = "C54", .source = "VeloxQuant-MLX#389, #138; llama.cpp#12161, #4097", .what = "offset is the number of retained rows",
       .injected = "rotation with a window", .model = blocks_32, .fault = Fault::rope_retained_rows, .op = "blk.0.attn_q_rope",
       .named_by = {"rope_position_retained"}},
      {.id = "C55", .source = "mlx-lm#1699", .what = "RoPE's offset moved by the cache's update in a batch",
       .injected = "rotation, runs of several sequences", .fault = Fault::rope_batch_offset, .stage = "kv_cache",
       .named_by = {"beside another sequence"}},
      {.id = "C56", .source = "tenstorrent/vllm#415; mlx-vlm#1748; vllm#50702", .what = "wrong on a cache hit only",
       .injected = "attention of a resumed prefill", .fault = Fault::ring_off_by_one, .op = "blk.0.attention",
       .named_by = {"kv_prefix_cells"}},
      {.id = "C57", .source = "moeut#6", .what = "decodes as if the query stood at 0", .injected = "rotation of queries",
       .fault = Fault::rope_q_start_zero, .op = "blk.0.attn_q_rope", .named_by = {"rope_position_start"}},
      {.id = "C58", .source = "1Cat-vLLM#280", .what = "recycled block not cleared", .injected = "attention after a truncation",
       .fault = Fault::stale_cells, .stage = "kv_cache",
       .named_by = {"truncat"}},
      {.id = "C59", .source = "Jlama#201; deliverance#87; sglang-jax#1282; mlx-lm#508", .what = "MoE outputs not weighted", .injected = "sum of the experts",
       .golden = "mixtral", .fault = Fault::experts_unweighted, .op = "blk.0.ffn_moe", .named_by = {"expert_weights"}},
      {.id = "C60", .source = "realizar#101", .what = "shortcut for the empty cache", .injected = "attention at position 0",
       .fault = Fault::first_position_short, .op = "blk.0.attention", .named_by = {"attention_first_position"}},
  };
}

// Beside the catalogue: what its experiment and its last line name, and second halves of its rows.
std::vector<Row> rows_further() {
  return {
      {.id = "X1", .source = "", .what = "K's positions one too large", .injected = "rotation", .fault = Fault::rope_k_plus_one,
       .op = "blk.0.attn_k_rope", .named_by = {"rope_position_shift"}},
      {.id = "X2", .source = "", .what = "attention's biases dropped", .injected = "matrix product", .model = blocks_32,
       .fault = Fault::bias_dropped, .op = "blk.0.attn_q", .named_by = {"linear_bias"}},
      {.id = "X3", .source = "", .what = "a quantised cache read with another scale than it was written with",
       .injected = "q8_0 keys and values: amax / 128", .model = gemma, .fault = Fault::cache_scale, .cache = CacheType::q8_0,
       .op = "blk.0.attention", .named_by = {"kv_scale"}},
      {.id = "X4", .source = "llama.cpp#3298", .what = "last tensor missed", .injected = "file: its last tensor is zeros",
       .change_file = last_tensor_missed, .stage = "file", .named_by = {"not written to its end"}},
      {.id = "X5", .source = "picolm#20", .what = "head ratios that do not fit", .injected = "file", .change_file = heads_do_not_divide,
       .stage = "file", .named_by = {"head_count_kv"}},
      {.id = "X6", .source = "rustorch 6b22003d", .what = "a file of another architecture", .injected = "file",
       .change_file = other_architecture, .stage = "file", .named_by = {"general.architecture"}},
      {.id = "X7", .source = "llama.cpp#6914", .what = "pre-tokenizer not named", .injected = "file", .model = blocks_32,
       .change_file = no_pre_tokenizer, .stage = "tokenizer", .named_by = {"tokenizer.ggml.pre"}},
  };
}
// clang-format on

std::vector<Row> make_catalogue() {
  std::vector<Row> all;
  for (const auto& part : {rows_r(), rows_text(), rows_loader(), rows_kernels(), rows_attention()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

const std::vector<Row>& catalogue() {
  static const std::vector<Row> rows = make_catalogue();
  return rows;
}

const std::vector<Row>& further_rows() {
  static const std::vector<Row> rows = rows_further();
  return rows;
}

}  // namespace assay::faults
