// The one exception type of the library. What came from outside and cannot be served is thrown as an Error; its message
// says which thing, what was needed and what was found.
#pragma once

#include <stdexcept>
#include <string>

namespace assay {

enum class Errc {
  bad_file,       // a model, tokenizer or template that breaks its format
  unsupported,    // a valid thing that this build does not serve, named in the message
  out_of_memory,  // need and have are in the message
  bad_request,    // a flag, prompt or option that cannot be served
  io,             // the operating system refused a file
  device,         // a GPU or its driver failed
};

struct Error : std::runtime_error {
  Error(Errc error_code, const std::string& what) : std::runtime_error(what), code(error_code) {}
  Errc code;
};

}  // namespace assay
