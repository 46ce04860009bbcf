// See page.h.
#include "serve/page.h"

#include <array>

namespace assay::serve {

namespace page {
extern const std::string_view index_html, app_js, style_css;  // made by cmake/EmbedText.cmake
}

const PageFile* find_page(std::string_view path) noexcept {
  static const std::array<PageFile, 3> files = {{{"/", "text/html; charset=utf-8", page::index_html},
                                                 {"/app.js", "text/javascript; charset=utf-8", page::app_js},
                                                 {"/style.css", "text/css; charset=utf-8", page::style_css}}};
  for (const PageFile& file : files) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace assay::serve
