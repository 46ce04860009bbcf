// A folder and what the user wants, to the new file's head and its tensors in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/convert.h"
#include "convert/draft.h"
#include "convert/families/families.h"
#include "convert/tokenizer_json.h"

namespace assay::converting {

struct Plan {
  const Family* family = nullptr;
  std::unique_ptr<Draft> draft;            // its outputs are in the order of the new file
  std::vector<tensor::DType> types;        // of each output
  std::optional<TokenizerJson> tokenizer;  // of the folder
  std::string type;                        // as ConvertResult::type
};

// Keys and tensors alone, without the vocabulary and types.
struct DrawnDraft {
  const Family* family = nullptr;
  std::string class_name;
  std::unique_ptr<Draft> draft;
};
DrawnDraft draw_draft(const Folder& folder, bool text_only);

// The folder must outlive the plan. Errors as convert().
Plan make_plan(const Folder& folder, const ConvertOptions& options);

}  // namespace assay::converting
