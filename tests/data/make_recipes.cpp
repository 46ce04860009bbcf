// Asks llama.cpp 0.5.0 which type its mixes give each tensor, for models of several shapes, and writes recipes.json.
// What `llama-quantize --dry-run` prints is what this function of it returns. Not part of the build: only its file
// llama-quant.cpp is compiled, and of the rest the linker takes what is there:
//   g++ -std=c++17 -I LLAMA/src -I LLAMA/include -I LLAMA/ggml/include make_recipes.cpp -L LIBS -lggml-base
//     -Wl,--unresolved-symbols=ignore-all
#include <cstdio>
#include <cstdlib>
#include <new>

#include "llama-quant.cpp"

namespace {

struct Model {
  const char* name;
  const char* architecture;
  llm_arch arch;
  bool is_70b;
  uint32_t n_layers, n_heads, n_kv_heads, n_experts;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;  // sizes as the file lists them, columns first
};

void block(Model& m, int64_t d, int64_t d_kv, int64_t d_ff, const char* parts) {  // parts: which tensors, a letter each
  for (uint32_t layer = 0; layer < m.n_layers; ++layer) {
    const std::string b = "blk." + std::to_string(layer) + ".";
    for (const char* c = parts; *c != 0; ++c) {
      switch (*c) {
        case 'k': m.tensors.push_back({b + "attn_k.weight", {d, d_kv}}); break;
        case 'n': m.tensors.push_back({b + "attn_norm.weight", {d}}); break;
        case 'o': m.tensors.push_back({b + "attn_output.weight", {d, d}}); break;
        case 'q': m.tensors.push_back({b + "attn_q.weight", {d, d}}); break;
        case 'f': m.tensors.push_back({b + "attn_qkv.weight", {d, 3 * d}}); break;
        case 'b': m.tensors.push_back({b + "attn_kv_b.weight", {d, d_kv}}); break;
        case 'v': m.tensors.push_back({b + "attn_v.weight", {d, d_kv}}); break;
        case 'D': m.tensors.push_back({b + "ffn_down.weight", {d_ff, d}}); break;
        case 'G': m.tensors.push_back({b + "ffn_gate.weight", {d, d_ff}}); break;
        case 'R': m.tensors.push_back({b + "ffn_gate_inp.weight", {d, m.n_experts}}); break;
        case 'U': m.tensors.push_back({b + "ffn_up.weight", {d, d_ff}}); break;
        case 'd': m.tensors.push_back({b + "ffn_down_exps.weight", {d_ff, d, m.n_experts}}); break;
        case 'g': m.tensors.push_back({b + "ffn_gate_exps.weight", {d, d_ff, m.n_experts}}); break;
        case 'u': m.tensors.push_back({b + "ffn_up_exps.weight", {d, d_ff, m.n_experts}}); break;
      }
    }
  }
}

std::vector<Model> models() {
  std::vector<Model> all = {
      {"grouped, own head", "llama", LLM_ARCH_LLAMA, false, 22, 32, 4, 0, {}},
      {"tied, no superblock fits", "llama", LLM_ARCH_LLAMA, false, 30, 9, 3, 0, {}},
      {"8 experts", "qwen3moe", LLM_ARCH_QWEN3MOE, false, 16, 16, 4, 8, {}},
      {"8 experts, not grouped, own head", "llama", LLM_ARCH_LLAMA, false, 32, 32, 16, 8, {}},
      {"60 experts", "qwen2moe", LLM_ARCH_QWEN2MOE, false, 24, 16, 16, 60, {}},
      {"fused qkv, position table", "gpt2", LLM_ARCH_GPT2, false, 12, 12, 12, 0, {}},
      {"kv_b", "deepseek2", LLM_ARCH_DEEPSEEK2, false, 27, 16, 16, 64, {}},
      {"70B", "llama", LLM_ARCH_LLAMA, true, 80, 64, 8, 0, {}},
      {"falcon", "falcon", LLM_ARCH_FALCON, false, 32, 71, 1, 0, {}},
      {"columns that fit nothing", "qwen2", LLM_ARCH_QWEN2, false, 8, 4, 2, 0, {}},
  };
  const auto outside = [](Model& m, int64_t d, bool own_head) {
    if (own_head) m.tensors.push_back({"output.weight", {d, 32000}});
    m.tensors.push_back({"output_norm.weight", {d}});
    m.tensors.push_back({"token_embd.weight", {d, 32000}});
  };
  outside(all[0], 2048, true), block(all[0], 2048, 256, 5632, "knoqvDGU");
  outside(all[1], 576, false), block(all[1], 576, 192, 1536, "knoqvDGU");
  outside(all[2], 2048, true), block(all[2], 2048, 512, 768, "knoqvdgRu");
  outside(all[3], 4096, true), block(all[3], 4096, 1024, 14336, "knoqvdgRu");
  outside(all[4], 2048, true), block(all[4], 2048, 2048, 1408, "knoqvdgRu");
  outside(all[5], 768, false), all[5].tensors.insert(all[5].tensors.begin() + 1, {"position_embd.weight", {768, 1024}});
  block(all[5], 768, 768, 3072, "nofDU");
  outside(all[6], 2048, true), block(all[6], 2048, 512, 1408, "bnoqdgRu");
  outside(all[7], 8192, true), block(all[7], 8192, 1024, 28672, "kvoD");
  outside(all[8], 4544, true), block(all[8], 4544, 64, 18176, "ofDU");
  outside(all[9], 1000, true), block(all[9], 1000, 500, 4000, "knoqvDGU");
  return all;
}

struct Name {
  const char* name;
  int ftype;
};
const Name kNames[] = {
    {"F32", 0},     {"F16", 1},     {"BF16", 32},    {"Q4_0", 2},      {"Q4_1", 3},    {"Q5_0", 8},     {"Q5_1", 9},
    {"Q8_0", 7},    {"Q2_K", 10},   {"Q2_K_S", 21},  {"Q3_K_S", 11},   {"Q3_K_M", 12}, {"Q3_K_L", 13},  {"Q4_K_S", 14},
    {"Q4_K_M", 15}, {"Q5_K_S", 16}, {"Q5_K_M", 17},  {"Q6_K", 18},     {"IQ1_S", 24},  {"IQ2_XXS", 19}, {"IQ2_XS", 20},
    {"IQ2_S", 28},  {"IQ2_M", 29},  {"IQ3_XXS", 23}, {"IQ3_XS", 22},   {"IQ3_S", 26},  {"IQ3_M", 27},   {"IQ4_NL", 25},
    {"IQ4_XS", 30}, {"TQ1_0", 36},  {"TQ2_0", 37},   {"MXFP4_MOE", 38}};

std::string part_of(const std::string& name) {
  return name.rfind("blk.", 0) == 0 ? name.substr(name.find('.', 4)) : name;
}

// One line: the types of all tensors, those with the same name in their blocks together (std::map's order), equal
// neighbours as TYPE*N.
std::string types_of(const Model& m, const llama_model& model, std::vector<ggml_tensor*>& tensors, int ftype,
                     bool has_matrix, bool pure) {
  llama_model_quantize_params params{};
  params.ftype = static_cast<llama_ftype>(ftype);
  params.output_tensor_type = params.token_embedding_type = GGML_TYPE_COUNT;
  params.quantize_output_tensor = true;
  params.pure = pure;
  quantize_state_impl qs(model, &params);
  qs.has_imatrix = has_matrix;
  std::vector<tensor_metadata> metadata(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) metadata[i].name = tensors[i]->name;
  init_quantize_state_counters(qs, metadata);
  const ggml_type default_type = llama_ftype_get_default_type(params.ftype);
  std::map<std::string, std::vector<std::string>> by_part;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string type = ggml_type_name(llama_tensor_get_type(qs, &params, tensors[i], default_type, metadata[i]));
    for (char& c : type) c = static_cast<char>(toupper(c));
    by_part[part_of(m.tensors[i].first)].push_back(type);
  }
  std::string text, last;
  int n = 0;
  const auto flush = [&] {
    if (n > 0) text += (text.empty() ? "" : " ") + last + (n > 1 ? "*" + std::to_string(n) : "");
  };
  for (const auto& [part, types] : by_part) {
    for (const std::string& type : types) {
      if (type == last) {
        ++n;
        continue;
      }
      flush();
      last = type, n = 1;
    }
  }
  flush();
  return text;
}

}  // namespace

int main() {
  std::printf("[");
  bool first = true;
  for (Model& m : models()) {
    auto* model = static_cast<llama_model*>(calloc(1, sizeof(llama_model)));  // read only where set below
    model->arch = m.arch;
    model->type = m.is_70b ? LLM_TYPE_70B : LLM_TYPE_UNKNOWN;
    model->hparams.n_layer_all = m.n_layers;
    model->hparams.n_expert = m.n_experts;
    for (uint32_t i = 0; i < m.n_layers; ++i) {
      model->hparams.n_head_arr[i] = m.n_heads;
      model->hparams.n_head_kv_arr[i] = m.n_kv_heads;
    }
    ggml_init_params init = {16 << 20, nullptr, true};
    ggml_context* ctx = ggml_init(init);
    std::vector<ggml_tensor*> tensors;
    std::printf(
        "%s\n{\"name\":\"%s\",\"architecture\":\"%s\",\"n_layers\":%u,\"n_heads\":%u,\"n_kv_heads\":%u,\"n_experts\":%"
        "u,\n\"tensors\":[",
        first ? "" : ",", m.name, m.architecture, m.n_layers, m.n_heads, m.n_kv_heads, m.n_experts);
    first = false;
    for (const auto& [name, sizes] : m.tensors) {
      if (name.rfind("blk.", 0) != 0 || name.rfind("blk.0.", 0) == 0) {  // the other blocks have the same
        std::printf("%s\"%s", tensors.empty() ? "" : ",", name.c_str());
        for (const int64_t size : sizes) std::printf(" %lld", static_cast<long long>(size));
        std::printf("\"");
      }
      ggml_tensor* t = ggml_new_tensor(ctx, sizes.size() == 1 ? GGML_TYPE_F32 : GGML_TYPE_F16,
                                       static_cast<int>(sizes.size()), sizes.data());
      ggml_set_name(t, name.c_str());
      tensors.push_back(t);
    }
    std::printf("],\n\"types\":{");
    bool first_mix = true;
    for (const Name& n : kNames) {
      for (const char* how : {"", "+matrix", "+pure"}) {
        const std::string types = types_of(m, *model, tensors, n.ftype, how[1] == 'm', how[1] == 'p');
        std::printf("%s\n\"%s%s\":\"%s\"", first_mix ? "" : ",", n.name, how, types.c_str());
        first_mix = false;
      }
    }
    std::printf("}}");
    ggml_free(ctx);
  }
  std::printf("]\n");
}
