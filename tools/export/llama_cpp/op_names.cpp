// See op_names.h.
#include "op_names.h"

#include <ggml.h>

#include <array>
#include <string_view>
#include <utility>

namespace exporter {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

std::string_view name_of(const ggml_tensor* tensor) {
  return tensor == nullptr ? std::string_view() : ggml_get_name(tensor);
}

// "blk.3.attn_q" of "blk.3.attn_q.weight"; empty for what is no such tensor.
std::string_view stem(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : std::string_view();
}

// "kqv_out-3" -> "blk.3.attention", by the label's first part.
std::string from_label(std::string_view label) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kLabels{
      {{"kqv_out", "attention"}, {"ffn_inp", "attn_residual"}, {"sa_out", "attn_residual"}, {"l_out", "residual"}}};
  const size_t dash = label.rfind('-');
  if (dash == std::string_view::npos) return {};
  for (const auto& [known, op] : kLabels) {
    if (label.substr(0, dash) == known) return "blk." + std::string(label.substr(dash + 1)) + "." + std::string(op);
  }
  return {};
}

bool is_view(const ggml_tensor* node) {
  return node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW || node->op == GGML_OP_PERMUTE ||
         node->op == GGML_OP_TRANSPOSE;
}

}  // namespace

std::string OpNames::source_op(const ggml_tensor* node) const {
  for (int depth = 0; node != nullptr && depth < 8; ++depth, node = node->src[0]) {
    const auto found = names_.find(node);
    if (found != names_.end() && !found->second.op.empty()) return found->second.op;
    if (!is_view(node)) return {};
  }
  return {};
}

const NamedOp& OpNames::of(const ggml_tensor* node) {
  const auto found = names_.find(node);
  if (found != names_.end()) return found->second;
  return names_.emplace(node, find(node)).first->second;
}

NamedOp OpNames::find(const ggml_tensor* node) const {
  switch (node->op) {
    case GGML_OP_GET_ROWS: {
      if (name_of(node->src[0]) == "token_embd.weight") return {"token_embd"};
      return {};
    }
    case GGML_OP_SCALE: {  // Gemma's embeddings; its queries are scaled too, but a plan's attention
                           // does that itself
      if (name_of(node) == "inp_scaled") return {"token_embd"};
      return {};
    }
    case GGML_OP_MUL_MAT: {
      const std::string_view op = stem(name_of(node->src[0]), kWeight);
      return {op == "token_embd" ? "output" : std::string(op)};  // a tied head
    }
    case GGML_OP_MUL: {  // the second half of a norm
      const std::string_view op = stem(name_of(node->src[1]), kWeight);
      return {std::string(op), op.ends_with("attn_q_norm") || op.ends_with("attn_k_norm")};
    }
    case GGML_OP_ADD: {
      const std::string_view op = stem(name_of(node->src[1]), kBias);
      if (!op.empty()) return {std::string(op)};  // the product before it has the same name
      return {from_label(name_of(node))};
    }
    case GGML_OP_ROPE: {
      std::string op = source_op(node->src[0]);
      if (op.ends_with("_norm")) op.resize(op.size() - 5);
      return {op.empty() ? op : op + "_rope", true};
    }
    case GGML_OP_GLU: {  // named after the gate's layer
      const std::string op = source_op(node->src[0]);
      const size_t dot = op.rfind('.');
      return {dot == std::string::npos ? std::string() : op.substr(0, dot) + ".ffn_act"};
    }
    case GGML_OP_CONT:
    case GGML_OP_RESHAPE: return {from_label(name_of(node))};  // attention without and with flash attention
    default: return {};
  }
}

}  // namespace exporter
