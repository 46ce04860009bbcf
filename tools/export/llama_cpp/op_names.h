// Which op of assay's plan a node of llama.cpp's graph is. Told by the graph, not by llama.cpp's
// labels, wherever the graph says it: a product with blk.3.attn_q.weight is blk.3.attn_q. Labels
// ("kqv_out-3") decide only for the ops that have no weight of their own.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

struct ggml_tensor;

namespace exporter {

struct NamedOp {
  std::string op;         // empty: not an op of the plan
  bool per_head = false;  // [n_tokens, n_heads, head_dim]; else [n_rows, width]
};

class OpNames {
 public:
  // Nodes must be asked in the order of the graph: an op without a weight is named after the one
  // that it reads. Names of a node that was asked before stay.
  const NamedOp& of(const ggml_tensor* node);
  void forget() { names_.clear(); }  // the next graph has nodes of its own

 private:
  NamedOp find(const ggml_tensor* node) const;
  std::string source_op(const ggml_tensor* node) const;  // of the op whose values these are, through views
  std::unordered_map<const ggml_tensor*, NamedOp> names_;
};

}  // namespace exporter
