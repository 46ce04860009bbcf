// The web page at /: its files are part of the program (src/serve/page/).
#pragma once

#include <string_view>

namespace assay::serve {

struct PageFile {
  std::string_view path, content_type, text;
};

const PageFile* find_page(std::string_view path) noexcept;  // null: none of the page's

// What a browser may do on it: run our script and our style, ask this server, and nothing else.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace assay::serve
