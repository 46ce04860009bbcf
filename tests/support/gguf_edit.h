// For tests: a file's content in a writer, without some of its keys and tensors, so that others can
// be set in their place.
//   GgufWriter edited = edited_copy(gguf::File::open(path), {"tokenizer.ggml.pre"});
//   edited.set("tokenizer.ggml.pre", "gpt-2").write(other_path);
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "support/gguf_writer.h"

namespace assay::test {

// change: gets every tensor's bytes and may change them, not their number.
inline GgufWriter edited_copy(const gguf::File& file, const std::set<std::string>& without,
                              const std::function<void(std::string_view name, Bytes& data)>& change = {}) {
  GgufWriter out;
  for (const gguf::Entry& entry : file.metadata().entries()) {
    if (without.contains(std::string(entry.key))) continue;
    Bytes payload;
    if (entry.type == gguf::ValueType::string) append(payload, uint64_t{entry.bytes.size()});
    if (entry.type == gguf::ValueType::array) {
      append(payload, static_cast<uint32_t>(entry.element_type));
      append(payload, entry.count);
    }
    append(payload, entry.bytes.data(), entry.bytes.size());
    out.raw_entry(entry.key, static_cast<uint32_t>(entry.type), payload);
  }
  for (const gguf::Tensor& tensor : file.tensors()) {
    if (without.contains(std::string(tensor.name))) continue;
    const tensor::Shape& shape = tensor.view.shape;
    Bytes data(tensor.view.data.begin(), tensor.view.data.end());
    if (change) change(tensor.name, data);
    out.tensor(tensor.name, tensor.view.dtype, {shape.dims.begin(), shape.dims.begin() + shape.rank}, data);
  }
  return out;
}

}  // namespace assay::test
